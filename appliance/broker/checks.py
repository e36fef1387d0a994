"""The broker: no rows are orphaned, and meshes keep ids long enough."""

from collections.abc import Iterator

from appliance.broker.orphans import find_orphans
from appliance.broker.recover import FINGERPRINTED, TABLE
from appliance.broker.retention import is_misconfigured
from appliance.checks.check import COPY, FINDINGS_MAX, Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.fingerprints import find_altered
from appliance.checks.rows import RowRule, find_rows
from appliance.kernel.clock import HOUR_MS
from appliance.kernel.steady_clock import steady_ms

FAILING_MS = HOUR_MS  # a webhook's shorter failures repair themselves
FANOUT_MS = 300_000


def _orphans(context: Context) -> Iterator[Finding]:
    before_ms = context.clock.now_ms() - FANOUT_MS
    limit = FINDINGS_MAX + 1
    for _, connection in context.opened("broker"):
        for orphan in find_orphans(connection, before_ms, limit)[:limit]:
            yield ORPHAN.finding(
                f"message {orphan.broker_message_id}",
                f"{orphan.message} ({orphan.rule})",
            )


def _fingerprints(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("broker", TABLE, "topic_message", "message_queue"):
        yield from find_altered(connection.execute(FINGERPRINTED), ALTERED, "message {0}")


def _retention(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("broker"):
        rows = connection.execute(
            "SELECT slug, dedupe_mode, dedupe_retention_days, message_retention_days FROM mesh"
            " ORDER BY slug"
        )
        for slug, mode, dedupe_days, message_days in rows:
            if is_misconfigured(mode, dedupe_days, message_days):
                yield TOO_SHORT.finding(
                    f"mesh {slug}",
                    f"ids are kept for {dedupe_days} days and messages for {message_days}:"
                    " the same send could be stored twice",
                    f"agentlip mesh update {slug} --dedupe-days {message_days}",
                )


def _webhooks(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("broker"):
        now_ms = steady_ms(connection, context.clock)
        rows = connection.execute(
            "SELECT m.slug, w.id, w.enabled, w.disabled_because, w.failing_since_ms,"
            " (SELECT count(*) FROM delivery_queue AS v WHERE v.mesh_id = w.mesh_id"
            "  AND v.recipient = 'webhook:' || w.id)"
            " FROM webhook AS w JOIN mesh AS m ON m.id = w.mesh_id"
            " WHERE w.disabled_because IS NOT NULL"
            " OR (w.enabled = 1 AND w.failing_since_ms <= ?) ORDER BY m.slug, w.id",
            (now_ms - FAILING_MS,),
        )
        for slug, webhook_id, enabled, because, since_ms, waiting in rows:
            hours = (now_ms - (since_ms or 0)) / HOUR_MS
            why = f"has failed for {hours:.1f} hours" if enabled else f"is disabled: {because}"
            problem = FAILING if enabled else DISABLED
            yield problem.finding(
                f"webhook {webhook_id}",
                f"the webhook of mesh {slug} {why}; {waiting} messages wait for the webhook",
                f"agentlip outbox list --to queue:{webhook_id}; agentlip mesh"
                f" update-webhook {slug} {webhook_id} --enable # after you repaired its receiver",
            )


FAILING = Problem("failing")
DISABLED = Problem("disabled")
TOO_SHORT = Problem("too-short")
ORPHAN = Problem("orphan", Severity.ERROR, hint=COPY)
ALTERED = Problem("altered", Severity.ERROR)
UNKNOWN_RECIPIENT = Problem("unknown", Severity.ERROR, hint=COPY)
CHECKS = (
    Check(
        name="broker.webhooks", inspects="mesh webhooks succeed", find=_webhooks,
        problems=(FAILING, DISABLED),
    ),
    Check(
        name="broker.retention", inspects="send ids are kept as long as their messages",
        find=_retention, problems=(TOO_SHORT,),
    ),
    Check(
        name="broker.orphans", inspects="every accepted id has its message, history and deliveries",
        cost=Cost.EXPENSIVE, find=_orphans, problems=(ORPHAN,),
    ),
    Check(
        name="broker.fingerprints", inspects="every stored message matches its fingerprint",
        cost=Cost.EXPENSIVE, find=_fingerprints, problems=(ALTERED,),
    ),
    Check(
        name="broker.recipients",
        inspects="every waiting delivery has a member, webhook or queue as its recipient",
        find=find_rows(
            "broker",
            RowRule(
                UNKNOWN_RECIPIENT,
                "SELECT substr(v.recipient, 1, 24), count(*), coalesce(m.slug, v.mesh_id) FROM"
                " (SELECT mesh_id, recipient FROM delivery_queue ORDER BY id DESC LIMIT :newest)"
                " AS v LEFT JOIN mesh AS m ON m.id = v.mesh_id"
                " WHERE NOT EXISTS (SELECT 1 FROM member AS m WHERE m.mesh_id = v.mesh_id"
                " AND m.pubkey = v.recipient)"
                " AND NOT EXISTS (SELECT 1 FROM webhook AS w WHERE w.mesh_id = v.mesh_id"
                " AND 'webhook:' || w.id = v.recipient)"
                " AND NOT EXISTS (SELECT 1 FROM place AS p WHERE p.mesh_id = v.mesh_id"
                " AND p.kind = 'queue' AND p.name = substr(v.recipient, 7)"
                " AND v.recipient LIKE 'queue:%')"
                " GROUP BY v.mesh_id, v.recipient ORDER BY v.mesh_id, v.recipient",
                "recipient {0}",
                "{1} deliveries in mesh {2} wait for a recipient that is not among the mesh's "
                "members, webhooks and queues",
                ("delivery_queue", "member", "webhook", "place", "mesh"),
            ),
        ),
        problems=(UNKNOWN_RECIPIENT,),
    ),
)  # fmt: skip

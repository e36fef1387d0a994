"""The broker: its promise holds for every row, and meshes keep ids for long enough."""

from collections.abc import Iterator

from appliance.broker.inspect import orphans
from appliance.broker.retention import is_misconfigured
from appliance.kernel.clock import iso
from doctor.check import Check, Context, Cost, Finding, Severity
from doctor.checks.clock import set_lately

FANOUT_MS = 300_000
LONGEST_WAIT_MS = 3 * 3_600_000  # receivers ask for an hour at most by default
_HAS_STATE = "SELECT 1 FROM pragma_table_info('webhook') WHERE name = 'disabled_because'"


def _orphans(context: Context) -> Iterator[Finding]:
    before_ms = context.clock.now_ms() - FANOUT_MS
    most = context.settings.findings_max + 1
    for _, connection in context.opened("broker"):
        for found in orphans(connection, before_ms, most)[:most]:
            yield Finding(
                Severity.ERROR,
                f"message {found.broker_message_id}",
                f"{found.sentence} ({found.rule})",
                "agentlip broker orphans --json; keep the output and a copy of broker.sqlite3",
            )


def _retention(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("broker"):
        rows = connection.execute(
            "SELECT slug, dedupe_mode, dedupe_retention_days, message_retention_days FROM mesh"
            " ORDER BY slug"
        ).fetchmany(10_000)
        for slug, mode, dedupe_days, message_days in rows:
            if is_misconfigured(mode, dedupe_days, message_days):
                yield Finding(
                    Severity.WARNING,
                    f"mesh {slug}",
                    f"ids are remembered for {dedupe_days} days and messages for {message_days}:"
                    " the same send could be stored twice",
                    f"agentlip mesh update {slug} --dedupe-days {message_days}",
                )


def _webhooks(context: Context) -> Iterator[Finding]:
    seconds = context.settings.send_waiting_warning_seconds
    before_ms = context.clock.now_ms() - int(seconds * 1000)
    for _, connection in context.opened("broker"):
        if not connection.execute(_HAS_STATE).fetchone():  # an older file, not brought up yet
            continue
        rows = connection.execute(
            "SELECT m.slug, w.id, w.enabled, w.disabled_because, w.failing_since_ms,"
            " (SELECT count(*) FROM delivery_queue AS v WHERE v.mesh_id = w.mesh_id"
            "  AND v.recipient = 'webhook:' || w.id)"
            " FROM webhook AS w JOIN mesh AS m ON m.id = w.mesh_id"
            " WHERE w.disabled_because IS NOT NULL"
            " OR (w.enabled = 1 AND w.failing_since_ms <= ?) ORDER BY m.slug, w.id",
            (before_ms,),
        ).fetchmany(context.settings.findings_max + 1)
        for slug, hook_id, enabled, because, since_ms, waiting in rows:
            hours = (context.clock.now_ms() - (since_ms or 0)) / 3_600_000
            why = f"takes nothing for {hours:.1f} hours" if enabled else f"is off: {because}"
            yield Finding(
                Severity.WARNING,
                f"webhook {hook_id}",
                f"of mesh {slug} {why}; {waiting} messages wait for it",
                f"agentlip mesh webhook-deliveries {slug} {hook_id}; mend its receiver, then:"
                f" agentlip mesh update-webhook {slug} {hook_id} --enable",
            )


def _clock(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("broker"):
        (count, latest_ms) = connection.execute(
            "SELECT count(*), max(ready_ms) FROM delivery_queue WHERE ready_ms > ?",
            (context.clock.now_ms() + LONGEST_WAIT_MS,),
        ).fetchone()
        if count:
            yield Finding(
                Severity.WARNING,
                "broker",
                f"{count} deliveries wait until a time in the future, up to {iso(latest_ms)}:"
                " the clock was ahead when they were accepted or tried",
                "agentlipd restart",
            )
        yield from set_lately(context, connection, "broker", "waiting deliveries")


CHECKS = (
    Check(name="broker.webhooks", inspects="webhooks of meshes are called", find=_webhooks),
    Check(name="broker.clock", inspects="deliveries wait for plausible times", find=_clock),
    Check(
        name="broker.retention",
        inspects="ids of sends are remembered for as long as their messages",
        find=_retention,
    ),
    Check(
        name="broker.orphans",
        inspects="every id that is used up has its message, history and deliveries",
        cost=Cost.EXPENSIVE,
        find=_orphans,
    ),
)

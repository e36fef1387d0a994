"""Checks that every waiting delivery of the broker has a recipient."""

from collections.abc import Iterator

from appliance.checks.check import NEWEST_IDS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context

UNKNOWN = (
    "SELECT v.mesh_id, v.recipient, count(*) FROM"
    " (SELECT mesh_id, recipient FROM delivery_queue ORDER BY id DESC LIMIT :newest) AS v"
    " WHERE NOT EXISTS (SELECT 1 FROM member AS m WHERE m.mesh_id = v.mesh_id"
    " AND m.pubkey = v.recipient)"
    " AND NOT EXISTS (SELECT 1 FROM webhook AS w WHERE w.mesh_id = v.mesh_id"
    " AND 'webhook:' || w.id = v.recipient)"
    " AND NOT EXISTS (SELECT 1 FROM place AS p WHERE p.mesh_id = v.mesh_id AND p.kind = 'queue'"
    " AND p.name = substr(v.recipient, 7) AND v.recipient LIKE 'queue:%')"
    " GROUP BY v.mesh_id, v.recipient ORDER BY v.mesh_id, v.recipient"
)
_TABLES = ("delivery_queue", "member", "webhook", "place", "mesh")


def _recipients(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("broker", *_TABLES):
        rows = connection.execute(UNKNOWN, {"newest": NEWEST_IDS_MAX})
        for mesh_id, recipient, count in rows:
            slug = connection.execute("SELECT slug FROM mesh WHERE id = ?", (mesh_id,)).fetchone()
            yield UNKNOWN_RECIPIENT.finding(
                f"recipient {recipient[:24]}",
                f"{count} deliveries of mesh {slug[0] if slug else mesh_id} wait for a recipient"
                " that is missing among its members, webhooks and queues",
            )


UNKNOWN_RECIPIENT = Problem(
    "unknown",
    "Nobody will take these deliveries, so they wait until their messages are removed.",
    "Another program changed the store: members are only revoked, never removed. There is no"
    " automatic repair.",
    Severity.ERROR,
    hint="agentlip broker orphans --json",
)
CHECKS = (
    Check(
        name="broker.recipients",
        inspects="every waiting delivery has a member, webhook or queue as its recipient",
        find=_recipients,
        reads="the newest waiting deliveries, members, webhooks and queues in `broker.sqlite3`",
        problems=(UNKNOWN_RECIPIENT,),
    ),
)

"""The event log: every event has a scope, every message has its event."""

from collections.abc import Iterator, Sequence

from appliance.checks.check import (
    FINDINGS_MAX,
    NEWEST_IDS_MAX,
    Check,
    Cost,
    Finding,
    Problem,
    Severity,
)
from appliance.checks.context import Context
from appliance.checks.plans import rebuild
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.step import Step
from appliance.hub.repairs import SCOPES

_CREATED = "SELECT entity_id FROM events WHERE name = 'message.created'"
_KINDS = "('channel', 'topic', 'message', 'attachment', 'topic_attachment')"
NO_SCOPE = (
    "SELECT event_id, name FROM (SELECT * FROM events WHERE scope_channel_id IS NULL"
    " ORDER BY event_id DESC LIMIT :newest) WHERE scope_topic_id IS NULL"
    f" AND scope_topic_id2 IS NULL AND entity_type IN {_KINDS} ORDER BY event_id"
)


def _scope(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("hub"):
        rows = connection.execute(NO_SCOPE, {"newest": NEWEST_IDS_MAX}).fetchmany(FINDINGS_MAX + 1)
        if rows:
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            yield UNSCOPED.finding(
                f"event {rows[0][0]}",
                f"{rows[0][1]}{more} without a scope, so subscribers of channels and topics don't"
                " receive them",
            )


def _fill_scopes(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    finding = Finding(findings[0].severity, "events", "", check=findings[0].check)
    yield rebuild(context, finding, SCOPES, "hub")


UNSCOPED = Problem("no-scope", hint="agentlip doctor repair rebuild event-scopes --yes")
NO_EVENT = Problem("no-event", Severity.ERROR)
CHECKS = (
    Check(
        name="events.scope", inspects="every event has a scope", find=_scope, repair=_fill_scopes,
        problems=(UNSCOPED,),
    ),
    Check(
        name="events.pairs",
        inspects="every message has its message.created event",
        cost=Cost.EXPENSIVE,
        find=find_rows(
            "hub",
            RowRule(
                NO_EVENT,
                f"SELECT id FROM messages EXCEPT {_CREATED}",
                "message {0}",
                "it has no message.created event",
            ),
        ),
        problems=(NO_EVENT,),
    ),
)  # fmt: skip

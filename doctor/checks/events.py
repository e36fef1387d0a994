"""The event log: no unexpected gaps, every event has a scope, every message has its event."""

from collections.abc import Iterator

from appliance.backup.remedies import verified_backup
from appliance.checks.check import (
    COPY,
    FINDINGS_MAX,
    NEWEST_IDS_MAX,
    Check,
    Cost,
    Finding,
    Problem,
    Severity,
)
from appliance.checks.context import Context
from appliance.checks.rows import RowRule, find_rows
from appliance.export.checks import segments
from appliance.export.logs import EVENTS
from appliance.shared.segment_chain import JUMP as EPOCH_JUMP

# A restore starts a new epoch and raises event ids by this much, so that none repeats.
_PREVIOUS = (
    "coalesce(previous, (SELECT coalesce(max(e.event_id), 0) FROM events AS e"
    " WHERE e.event_id < newest.event_id))"
)
GAPS = (
    f"SELECT {_PREVIOUS}, event_id FROM (SELECT event_id, lead(event_id) OVER (ORDER BY event_id"
    " DESC) AS previous FROM (SELECT event_id FROM events ORDER BY event_id DESC LIMIT :newest))"
    f" AS newest WHERE event_id - {_PREVIOUS} BETWEEN 2 AND :jump - 1 ORDER BY event_id"
)
_CREATED = "SELECT entity_id FROM events WHERE name = 'message.created'"
_KINDS = "('channel', 'topic', 'message', 'attachment', 'topic_attachment')"
NO_SCOPE = (
    "SELECT event_id, name FROM (SELECT * FROM events WHERE scope_channel_id IS NULL"
    " ORDER BY event_id DESC LIMIT :newest) WHERE scope_topic_id IS NULL"
    f" AND scope_topic_id2 IS NULL AND entity_type IN {_KINDS} ORDER BY event_id"
)


def _newest_sequence(context: Context) -> Iterator[Finding]:
    yield from _gaps(context, NEWEST_IDS_MAX)


def _sequence(context: Context) -> Iterator[Finding]:
    yield from _gaps(context, -1)


def _gaps(context: Context, newest: int) -> Iterator[Finding]:
    """`newest`: how many ids are compared; -1 compares all."""
    for _, connection in context.opened("hub"):
        rows = connection.execute(GAPS, {"newest": newest, "jump": EPOCH_JUMP}).fetchmany(
            FINDINGS_MAX + 1
        )
        for previous, event_id in rows:
            kept = _kept(context, previous + 1)
            yield _GAP.finding(
                "events",
                f"no events between {previous} and {event_id}: another program added or removed"
                f" rows; {kept or 'no copy contains them'}",
                severity=Severity.ERROR if kept else Severity.WARNING,
            )


def _kept(context: Context, event_id: int) -> str:
    """Which copy contains the event: a segment without a gap, or the newest verified backup."""
    for manifest in segments(context, EVENTS):
        whole = manifest.rows == manifest.last_event_id - manifest.first_event_id + 1
        if whole and manifest.first_event_id <= event_id <= manifest.last_event_id:
            return f"the segment {manifest.file} contains them"
    name = verified_backup(context.datadir, "hub")
    return f"the verified backup {name} may contain them" if name else ""


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


_GAP = Problem(
    "gap",
    "Another program added or removed events. It is an error if a copy contains them.",
    "Restore the backup that the hint names; a segment has them as rows: `agentlip export`.",
    hint=COPY,
)
UNSCOPED = Problem(
    "no-scope",
    "Subscribers of channels and topics don't receive these events. Subscribers of everything do.",
    "`agentlip doctor repair` fills the scopes in from the data of the events.",
    hint="agentlip doctor repair rebuild event-scopes --yes",
)
NO_EVENT = Problem(
    "no-event",
    "Listeners never received the message.",
    "Another program inserted the row. There is no automatic repair.",
    Severity.ERROR,
)
NO_MESSAGE = Problem(
    "no-message",
    "The message was removed from its table, but not from the event log.",
    "The event still has the message's text. There is no automatic repair.",
    Severity.ERROR,
)
CHECKS = (
    Check(
        name="events.sequence",
        inspects="the newest part of the event log has no gaps except those of a restore",
        find=_newest_sequence,
        reads="the ids of the newest 20,000 events in the hub's store",
        problems=(_GAP,),
    ),
    Check(
        name="events.sequence-all",
        inspects="the event log has no gaps except those of a restore",
        cost=Cost.EXPENSIVE,
        includes="events.sequence",
        find=_sequence,
        reads="the ids of all events in the hub's store",
        problems=(_GAP,),
    ),
    Check(
        name="events.scope",
        inspects="every event has a scope",
        find=_scope,
        reads="the newest 20,000 events without a channel in the hub's store",
        problems=(UNSCOPED,),
    ),
    Check(
        name="events.pairs",
        inspects="every message has its message.created event and vice versa",
        cost=Cost.EXPENSIVE,
        find=find_rows(
            "hub",
            RowRule(
                NO_EVENT,
                f"SELECT id FROM messages EXCEPT {_CREATED}",
                "message {0}",
                "it has no message.created event",
            ),
            RowRule(
                NO_MESSAGE,
                f"{_CREATED} EXCEPT SELECT id FROM messages",
                "message {0}",
                "its message.created event exists, but the message is missing",
            ),
        ),
        reads="all messages and all `message.created` events in the hub's store",
        problems=(NO_EVENT, NO_MESSAGE),
    ),
)

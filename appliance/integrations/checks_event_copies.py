"""Finds gaps in the hub's event log, and the segments and verified backups that contain the missing
events. Repairs messages, which depend on segments too."""

from collections.abc import Iterable, Iterator, Sequence

from appliance.backup.remedies import verified_backup
from appliance.checks.cause import Cause
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
from appliance.checks.step import Step
from appliance.export.checks import segments
from appliance.export.logs import EVENTS
from appliance.hub.checks import change_messages
from appliance.integrations.checks_exported_rows import find_forged
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


def _newest_sequence(context: Context) -> Iterator[Finding]:
    yield from _gaps(context, NEWEST_IDS_MAX)


def _sequence(context: Context) -> Iterator[Finding]:
    yield from _gaps(context, -1)


def _gaps(context: Context, newest: int) -> Iterator[Finding]:
    """Yield a finding for each gap among the `newest` ids; -1 compares all ids."""
    for _, connection in context.opened("hub"):
        rows = connection.execute(GAPS, {"newest": newest, "jump": EPOCH_JUMP}).fetchmany(
            FINDINGS_MAX + 1
        )
        for previous, event_id in rows:
            kept = _find_copy(context, previous + 1)
            yield _GAP.finding(
                "events",
                f"no events between {previous} and {event_id}: another program added or removed"
                f" rows; {kept or 'no copy contains them'}",
                severity=Severity.ERROR if kept else Severity.WARNING,
            )


def _find_copy(context: Context, event_id: int) -> str:
    """Return the copy that contains the event: a segment without a gap, or the newest verified
    backup."""
    for manifest in segments(context, EVENTS):
        whole = manifest.rows == manifest.last_event_id - manifest.first_event_id + 1
        if whole and manifest.first_event_id <= event_id <= manifest.last_event_id:
            return f"the segment {manifest.file} contains them"
    name = verified_backup(context.datadir, "hub")
    return f"the verified backup {name} may contain them" if name else ""


def _restore_messages(context: Context, findings: Sequence[Finding]) -> Iterable[Step]:
    """Return the repair steps; none while events differ from their segments, because a row may then
    be the only trace of the original text."""
    if any(find_forged(context, EVENTS, manifest) for manifest in segments(context, EVENTS)):
        return ()
    return _RESTORE(context, findings)


_RESTORE = change_messages("restore-message", "set message {} to its events' state")
_GAP = Problem("gap", hint=COPY)
CAUSES = (
    Cause(
        "events.sequence*:gap",
        ("events.rows*:differs", "events.rows*:gap", "events.deleted:gap", "events.pairs:no-event"),
    ),
)
CHECKS = (
    Check(
        name="events.sequence",
        inspects="the event log's newest part has no gaps except from restores",
        find=_newest_sequence,
        problems=(_GAP,),
    ),
    Check(
        name="events.sequence-all", inspects="the event log has no gaps except from restores",
        cost=Cost.EXPENSIVE, includes="events.sequence", find=_sequence, problems=(_GAP,),
    ),
)  # fmt: skip
REPAIRS = dict.fromkeys(("events.rows", "events.rows-all"), _restore_messages)
"""The repairs, keyed by hub check."""

"""Checks rows against their events: replayed, they must give what is stored now.

The cheap checks read the newest events; the expensive one reads all.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from weakref import WeakKeyDictionary

import msgspec

from appliance.checks.check import (
    CLOCK_BEHIND_WARNING_SECONDS,
    COPY,
    THIS_CHECK,
    Check,
    Cost,
    Finding,
    Problem,
    Severity,
)
from appliance.checks.context import Context
from appliance.hub import event_replay
from appliance.hub.event_replay import Break, ReplayedEvent, State
from appliance.kernel.clock import utc
from appliance.kernel.reader import snapshot
from appliance.shared.segment_chain import JUMP as EPOCH_JUMP

_BYTES_MAX = 32 * 1024 * 1024
_REPAIR = f"agentlip doctor repair --run {THIS_CHECK} --data --yes"
_SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
_WORDS = {
    "content_raw": "text",
    "created_at": "creation time",
    "deleted": "deleted or not",
    "deleted_by": "name of the member who deleted the message",
    "topic_id": "topic",
    "channel_id": "channel",
    "value_json": "value",
}
Key = tuple[str, str]
_WINDOWS: "WeakKeyDictionary[Context, _Window]" = WeakKeyDictionary()
NEWEST_ROWS_MAX = 1_000  # a table's newest rows that a cheap check reads


class _Window:
    """The newest events' states and breaks, and the highest id given out then."""

    def __init__(self, events: list[ReplayedEvent], sequence: int | None) -> None:
        self.events = events
        self.sequence = sequence
        self.last = events[-1].event_id if events else 0
        self.states: dict[Key, State] = {}
        self.breaks: list[tuple[Key, Break]] = []
        for event in events:
            if event.kind in event_replay.KINDS:
                key = (event.kind, event.entity_id)
                self.states[key], broken = event_replay.apply(self.states.get(key), event)
                if broken is not None:
                    self.breaks.append((key, broken))


def _rows(context: Context) -> Iterator[Finding]:
    for connection in _hub(context):
        window = _WINDOWS[context] = _window(connection)
        for (kind, entity_id), state in window.states.items():
            row = event_replay.row_of(connection, kind, entity_id)
            yield from _compare(kind, entity_id, state, row)


def _compare(kind: str, entity_id: str, state: State, row: State | None) -> Iterator[Finding]:
    subject, hint = f"{kind} {entity_id}", _REPAIR if kind == "message" else COPY
    if row is None:
        yield MISSING.finding(subject, f"its events exist, but the {kind} is missing", hint)
        return
    names = event_replay.differences(state, row)
    if names:
        words = ", ".join(_WORDS.get(name, name) for name in names)
        yield DIFFERS.finding(subject, f"the stored {kind} differs from its events: {words}", hint)


# -- order and gaps ----------------------------------------------------------------------------


def _order(context: Context) -> Iterator[Finding]:
    for window in _windows(context):
        yield from _breaks(window.breaks, _MIXED)
        yield from _backwards(window.events)


def _deleted(context: Context) -> Iterator[Finding]:
    for window in _windows(context):
        yield from _breaks(window.breaks, _GAP)
        if window.sequence is not None and 0 < window.sequence - window.last < EPOCH_JUMP:
            yield END.finding(
                "events",
                f"the newest events are missing: ids up to {window.sequence} were given out, the"
                f" last event is {window.last}",
            )


def _breaks(breaks: list[tuple[Key, Break]], problem: Problem) -> Iterator[Finding]:
    for (kind, entity_id), broken in breaks:
        if broken.problem == problem.name:
            message = f"event {broken.event_id}: {broken.message}"
            yield problem.finding(f"{kind} {entity_id}", message)


def _backwards(events: list[ReplayedEvent]) -> Iterator[Finding]:
    """Yield findings about events earlier than the event before them, by more than ordinary
    clock corrections."""
    before: float | None = None
    for event in events:
        moment = _seconds(event.ts)
        if moment is None:
            continue
        if before is not None and before - moment > CLOCK_BEHIND_WARNING_SECONDS:
            yield _TIME.finding(
                f"event {event.event_id}",
                f"the event's time, {event.ts}, is {before - moment:.0f} s earlier than the "
                "preceding event: the clock was set back, or another program changed the log",
            )
        before = moment


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(utc(text)).timestamp()
    except ValueError:
        return None


# -- everything --------------------------------------------------------------------------------


def _everything(context: Context) -> Iterator[Finding]:
    """Fold the whole log into a temporary file, then compare every row."""
    for connection in _hub(context):
        with closing(sqlite3.connect("", isolation_level=None)) as states:
            states.execute(
                "CREATE TABLE state (kind TEXT, id TEXT, facts BLOB, PRIMARY KEY (kind, id))"
                " WITHOUT ROWID"
            )
            states.execute("BEGIN")
            last: ReplayedEvent | None = None
            for events in event_replay.all_events(connection):
                breaks = _fold(states, events)
                yield from _breaks(breaks, _MIXED)
                yield from _breaks(breaks, _GAP)
                yield from _backwards([*([last] if last else []), *events])
                last = events[-1]
            yield from _compare_all(connection, states)


def _fold(states: sqlite3.Connection, events: list[ReplayedEvent]) -> list[tuple[Key, Break]]:
    changed: dict[Key, State | None] = {}
    breaks = []
    for event in events:
        if event.kind not in event_replay.KINDS:
            continue
        key = (event.kind, event.entity_id)
        if key not in changed:
            row = states.execute("SELECT facts FROM state WHERE kind = ? AND id = ?", key)
            stored = row.fetchone()
            changed[key] = None if stored is None else msgspec.msgpack.decode(stored[0])
        changed[key], broken = event_replay.apply(changed[key], event)
        if broken is not None:
            breaks.append((key, broken))
    states.executemany(
        "INSERT OR REPLACE INTO state VALUES (?, ?, ?)",
        [(*key, msgspec.msgpack.encode(_short(state or {}))) for key, state in changed.items()],
    )
    return breaks


def _short(state: State) -> State:
    text = state.get("content_raw")
    return {**state, "content_raw": event_replay.digest(text)} if isinstance(text, str) else state


def _compare_all(connection: sqlite3.Connection, states: sqlite3.Connection) -> Iterator[Finding]:
    for kind, entity_id, facts in states.execute("SELECT kind, id, facts FROM state"):
        row = event_replay.row_of(connection, kind, entity_id)
        yield from _compare(kind, entity_id, msgspec.msgpack.decode(facts), row)


# -- reading -----------------------------------------------------------------------------------


def _window(connection: sqlite3.Connection) -> _Window:
    row = connection.execute(_SEQUENCE).fetchone()
    events = event_replay.newest(connection, NEWEST_ROWS_MAX, _BYTES_MAX)
    return _Window(events, None if row is None else row[0])


def _windows(context: Context) -> Iterator[_Window]:
    """Yield the window that another check in the same run has read, or a new one."""
    if context in _WINDOWS:
        yield _WINDOWS[context]
        return
    for connection in _hub(context):
        yield _WINDOWS.setdefault(context, _window(connection))


def _hub(context: Context) -> Iterator[sqlite3.Connection]:
    """Yield the hub's store if it has all tables, in one transaction: events and rows fit
    together."""
    needed = ("events", "x_message_principals", *event_replay.TABLES.values())
    for connection in context.with_tables("hub", *needed):
        with snapshot(connection):
            yield connection


DIFFERS = Problem("differs", Severity.ERROR)
MISSING = Problem("missing", Severity.ERROR)
_MIXED = Problem("mixed", Severity.ERROR, hint=COPY)
_TIME = Problem("time", hint="timedatectl; date -u")
_GAP = Problem("gap", Severity.ERROR, hint=COPY)
END = Problem("end", Severity.ERROR, hint=COPY)
CHECKS = (
    Check(
        name="events.rows", inspects="the newest events match their rows", find=_rows,
        problems=(DIFFERS, MISSING),
    ),
    Check(
        name="events.order", inspects="the newest events are in chronological order",
        find=_order, problems=(_MIXED, _TIME),
    ),
    Check(
        name="events.deleted", inspects="no recent event was deleted", find=_deleted,
        problems=(_GAP, END),
    ),
    Check(
        name="events.rows-all",
        inspects="every row matches its events, and every event follows from earlier events",
        cost=Cost.EXPENSIVE, includes="events.rows", find=_everything,
        problems=(DIFFERS, MISSING, _MIXED, _TIME, _GAP),
    ),
)  # fmt: skip

"""Reads agents and their turns."""

from typing import Any

from msgspec import json

from appliance.hub.agents import wire
from appliance.hub.entries.queries import OPEN_MAX
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.reader import Reader

_OPEN = (
    "(SELECT count(*) FROM (SELECT 1 FROM x_entries AS e WHERE e.name = a.name"
    f" AND e.settled_at IS NULL LIMIT {OPEN_MAX}))"
)
_SELECT = (
    "SELECT a.name, a.state, a.state_since, a.reported_at, a.paused_by, a.paused_at,"
    f" a.paused_because, a.paused_until_steady_ms, {_OPEN} FROM x_agents AS a"
)
_ONE = f"{_SELECT} WHERE a.name = ?"
_PAGE = f"{_SELECT} WHERE a.name > ? ORDER BY a.name LIMIT ?"
_TURNS = (
    "SELECT id, name, began_at, seconds, outcome, code, entries_json, open_json, output"
    " FROM x_turns WHERE name = ? ORDER BY id DESC LIMIT ?"
)
_ids = json.Decoder(list[int]).decode


def find(reader: Executor, name: str, ahead_ms: int) -> wire.Agent:
    """Return an agent. `ahead_ms`: how far the wall clock is ahead of the steady clock. Raises
    NoSuchAgent."""
    row = reader.execute(_ONE, (name,)).fetchone()
    if row is None:
        raise wire.NoSuchAgent(details={"name": name})
    return _agent(row, ahead_ms)


def page(reader: Reader, after: str, limit: int, ahead_ms: int) -> list[wire.Agent]:
    """Return agents by name, one more than `limit`."""
    rows = reader.rows(_PAGE, (after, limit + 1), limit=limit + 1)
    return [_agent(row, ahead_ms) for row in rows]


def turns(reader: Reader, name: str, limit: int) -> list[wire.Turn]:
    rows = reader.rows(_TURNS, (name, limit), limit=limit)
    return [
        wire.Turn(number, of, at, seconds, outcome, code, _ids(given), _ids(left), output)
        for number, of, at, seconds, outcome, code, given, left, output in rows
    ]


def _agent(row: Any, ahead_ms: int) -> wire.Agent:
    name, state, since, reported_at, by, at, because, until, count = row
    pause = None
    if by is not None:
        pause = wire.Pause(by, at, because, None if until is None else iso(until + ahead_ms))
    return wire.Agent(name, state, since, reported_at, pause, count)

"""Reads agents and their turns."""

from typing import Any

from msgspec import json

from appliance.hub.agents import wire
from appliance.hub.entries.queries import OPEN_MAX
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.reader import Reader

_OPEN = (
    "(SELECT count(*) FROM (SELECT 1 FROM x_entries AS o WHERE o.name = a.name"
    f" AND o.settled_at IS NULL LIMIT {OPEN_MAX}))"
)
_SELECT = (
    "SELECT a.name, a.state, a.state_since, a.reported_at,"
    " ifnull(p.paused_by, e.paused_by), ifnull(p.paused_at, e.paused_at),"
    " iif(p.id, p.reason, e.reason), iif(p.id, p.until_steady_ms, e.until_steady_ms),"
    f" {_OPEN}"
    " FROM x_agents AS a"
    " LEFT JOIN x_pauses AS p ON p.kind = 'principal' AND p.subject = a.name"
    " AND ifnull(p.until_steady_ms > ?1, 1)"
    " LEFT JOIN x_pauses AS e ON e.kind = 'all' AND e.subject = ''"
    " AND ifnull(e.until_steady_ms > ?1, 1)"
)
_ONE = f"{_SELECT} WHERE a.name = ?2"
_PAGE = f"{_SELECT} WHERE a.name > ?2 ORDER BY a.name LIMIT ?3"
_TURNS = (
    "SELECT id, name, began_at, seconds, outcome, code, entries_json, open_json, output, tokens,"
    " cost"
    " FROM x_turns WHERE name = ? ORDER BY id DESC LIMIT ?"
)
_ids = json.Decoder(list[int]).decode


def find(reader: Executor, name: str, steady_ms: int, ahead_ms: int) -> wire.Agent:
    """Return an agent. `steady_ms`: the steady clock; `ahead_ms`: how far the wall clock is ahead.
    Raises NoSuchAgent."""
    row = reader.execute(_ONE, (steady_ms, name)).fetchone()
    if row is None:
        raise wire.NoSuchAgent(details={"name": name})
    return _agent(row, ahead_ms)


def page(reader: Reader, after: str, limit: int, steady_ms: int, ahead_ms: int) -> list[wire.Agent]:
    """Return agents by name, one more than `limit`."""
    rows = reader.rows(_PAGE, (steady_ms, after, limit + 1), limit=limit + 1)
    return [_agent(row, ahead_ms) for row in rows]


def turns(reader: Reader, name: str, limit: int) -> list[wire.Turn]:
    rows = reader.rows(_TURNS, (name, limit), limit=limit)
    return [
        wire.Turn(number, of, at, seconds, outcome, code, _ids(given), _ids(left), *more)
        for number, of, at, seconds, outcome, code, given, left, *more in rows
    ]


def _agent(row: Any, ahead_ms: int) -> wire.Agent:
    name, state, since, reported_at, by, at, because, until, count = row
    pause = None
    if by is not None:
        pause = wire.Pause(by, at, because, None if until is None else iso(until + ahead_ms))
    return wire.Agent(name, state, since, reported_at, pause, count)

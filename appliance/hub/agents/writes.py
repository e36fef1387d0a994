"""Takes reports and pauses, inside their transactions."""

from contextlib import suppress

from appliance.hub import ceilings
from appliance.hub.agents import queries, wire
from appliance.hub.bounds import writes as bounds_writes
from appliance.hub.bounds.wire import NotPaused
from appliance.hub.entries.writes import escalate, see
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply

_REPORT = (
    "INSERT INTO x_agents (name, run_id, state, state_since, reported_at)"
    " VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (name) DO UPDATE SET run_id = ?2,"
    " state_since = iif(state = ?3 AND run_id = ?2, state_since, ?4), state = ?3, reported_at = ?4"
)
_PRESENT = (
    "SELECT run_id, state, state_since, ifnull((SELECT max(id) FROM x_turns WHERE name = ?1), 0)"
    " FROM x_agents WHERE name = ?1"
)
_TURN = (
    "INSERT OR IGNORE INTO x_turns (name, key, began_at, seconds, outcome, code, entries_json,"
    " open_json, output, tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PRUNE = (
    "DELETE FROM x_turns WHERE name = ?1 AND id <= (SELECT id FROM x_turns WHERE name = ?1"
    f" ORDER BY id DESC LIMIT 1 OFFSET {wire.TURNS_KEPT})"
)
_ADD = "INSERT OR IGNORE INTO x_agents (name, state, state_since) VALUES (?, 'stopped', ?)"
_WAKING = "UPDATE x_inboxes SET waking = ?, waking_at = ? WHERE name = ?"


def report(tx: Tx, name: str, command: wire.Report) -> wire.ReportTaken:
    """Store a report. An older program's report only stores its turn. A program that replaces a
    working program is shown as working until its second report."""
    row = tx.execute(_PRESENT, (name,)).fetchone()
    if row is None:
        (count,) = tx.execute("SELECT count(*) FROM x_agents").fetchone()
        if count >= wire.AGENTS_MAX:
            raise wire.TooManyAgents(details={"limit": wire.AGENTS_MAX})
    if command.turn is not None:
        _add_turn(tx, name, command.run_id, command.turn)
    runner = None
    if row is not None and row[0] and (command.begins or row[0] != command.run_id):
        runner = wire.Runner(*row[:3])
    newest = command.begins or runner is None
    if newest:
        state = runner.state if runner and runner.state == "working" else command.state
        tx.execute(_REPORT, (name, command.run_id, state, tx.now))
        escalate(tx, name, command.escalate)
    present = _find(tx, name)
    see(tx, name)
    tx.execute(_WAKING, ("paused" if present.pause else present.state, tx.now, name))
    return wire.ReportTaken(present.pause, newest, runner, row[3] if row else 0)


def pause(tx: Tx, name: str, command: wire.PauseAgent, by: str, principal: str | None) -> Reply:
    """Pause an agent, also one that never ran."""
    tx.execute(_ADD, (name, tx.now))
    bounds_writes.pause(tx, "principal", name, command.reason, command.seconds, by, principal)
    return _shown(tx, name)


def resume(tx: Tx, name: str, principal: str | None) -> Reply:
    """End an agent's own pause, if there is one."""
    _find(tx, name)
    with suppress(NotPaused):
        bounds_writes.resume(tx, "principal", name, principal)
    return _shown(tx, name)


def _add_turn(tx: Tx, name: str, run_id: str, turn: wire.TurnReport) -> None:
    key = f"{run_id}/{turn.number}"
    ids = [encode(turn.entries).decode(), encode(turn.open).decode()]
    values = (
        name, key, turn.began_at, turn.seconds, turn.outcome, turn.code, *ids, turn.output,
        turn.tokens, turn.cost,
    )  # fmt: skip
    if tx.execute(_TURN, values).rowcount:
        ceilings.count(tx, name, turns=1, tokens=turn.tokens, cost=turn.cost)
    tx.execute(_PRUNE, (name,))


def _shown(tx: Tx, name: str) -> Reply:
    return Reply(200, encode(wire.AgentShown(_find(tx, name))))


def _find(tx: Tx, name: str) -> wire.Agent:
    return queries.find(tx, name, tx.steady_ms, tx.now_ms - tx.steady_ms)

"""Takes reports and pauses, inside their transactions."""

from appliance.hub.agents import queries, wire
from appliance.hub.entries.writes import escalate, see
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply

_REPORT = (
    "INSERT INTO x_agents (name, run_id, state, state_since, reported_at)"
    " VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (name) DO UPDATE SET run_id = ?2,"
    " state_since = iif(state = ?3, state_since, ?4), state = ?3, reported_at = ?4"
)
_TURN = (
    "INSERT OR IGNORE INTO x_turns (name, key, began_at, seconds, outcome, code, entries_json,"
    " open_json, output) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PRUNE = (
    "DELETE FROM x_turns WHERE name = ?1 AND id <= (SELECT id FROM x_turns WHERE name = ?1"
    f" ORDER BY id DESC LIMIT 1 OFFSET {wire.TURNS_KEPT})"
)
_PAUSE = (
    "INSERT INTO x_agents (name, state, state_since, paused_by, paused_at, paused_because,"
    " paused_until_steady_ms) VALUES (?1, 'stopped', ?2, ?3, ?2, ?4, ?5) ON CONFLICT (name)"
    " DO UPDATE SET paused_by = ?3, paused_at = ?2, paused_because = ?4,"
    " paused_until_steady_ms = ?5"
)
_RESUME = (
    "UPDATE x_agents SET paused_by = NULL, paused_at = NULL, paused_because = NULL,"
    " paused_until_steady_ms = NULL WHERE name = ?"
)
_WAKING = "UPDATE x_inboxes SET waking = ?, waking_at = ? WHERE name = ?"


def report(tx: Tx, name: str, command: wire.Report) -> wire.ReportTaken:
    """Store a report. An older program's report only stores its turn."""
    row = tx.execute("SELECT run_id FROM x_agents WHERE name = ?", (name,)).fetchone()
    if row is None:
        (count,) = tx.execute("SELECT count(*) FROM x_agents").fetchone()
        if count >= wire.AGENTS_MAX:
            raise wire.TooManyAgents(details={"limit": wire.AGENTS_MAX})
    if command.turn is not None:
        _add_turn(tx, name, command.run_id, command.turn)
    newest = command.begins or row is None or row[0] in (None, command.run_id)
    if newest:
        tx.execute(_REPORT, (name, command.run_id, command.state, tx.now))
        escalate(tx, name, command.escalate)
    _end_pause(tx, name)
    present = queries.find(tx, name, tx.now_ms - tx.steady_ms).pause
    see(tx, name)
    tx.execute(_WAKING, ("paused" if present else command.state, tx.now, name))
    return wire.ReportTaken(present, newest)


def pause(tx: Tx, name: str, command: wire.PauseAgent, by: str) -> Reply:
    seconds = command.seconds
    until = None if seconds is None else tx.steady_ms + seconds * 1000
    tx.execute(_PAUSE, (name, tx.now, by, command.reason, until))
    tx.execute(_WAKING, ("paused", tx.now, name))
    return _shown(tx, name)


def resume(tx: Tx, name: str) -> Reply:
    agent = queries.find(tx, name, 0)
    tx.execute(_RESUME, (name,))
    tx.execute(_WAKING, (agent.state, tx.now, name))
    return _shown(tx, name)


def _end_pause(tx: Tx, name: str) -> None:
    sql = "SELECT paused_until_steady_ms FROM x_agents WHERE name = ?"
    (until,) = tx.execute(sql, (name,)).fetchone()
    if until is not None and until <= tx.steady_ms:
        tx.execute(_RESUME, (name,))


def _add_turn(tx: Tx, name: str, run_id: str, turn: wire.TurnReport) -> None:
    key = f"{run_id}/{turn.number}"
    ids = [encode(turn.entries).decode(), encode(turn.open).decode()]
    tx.execute(
        _TURN,
        (name, key, turn.began_at, turn.seconds, turn.outcome, turn.code, *ids, turn.output),
    )
    tx.execute(_PRUNE, (name,))


def _shown(tx: Tx, name: str) -> Reply:
    agent = queries.find(tx, name, tx.now_ms - tx.steady_ms)
    return Reply(200, encode(wire.AgentShown(agent)))

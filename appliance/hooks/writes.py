"""The rows of runs, in the inbox's store: every run, and what it did by its grant."""

import msgspec

from appliance.kernel.batch import Tx


def begin(
    tx: Tx, id_: str, hook: str, event: str, mesh: str, inbox_id: str | None, truncated: bool
) -> None:
    tx.execute(
        "INSERT INTO hook_runs (id, at, hook, event, mesh, inbox_id, outcome, exit_code,"
        " duration_ms, truncated, said_bytes, acts)"
        " VALUES (?, ?, ?, ?, ?, ?, 'running', NULL, 0, ?, 0, '[]')",
        (id_, tx.now_ms, hook, event, mesh, inbox_id, truncated),
    )


def end(
    tx: Tx, id_: str, outcome: str, exit_code: int | None, duration_ms: int, said_bytes: int
) -> None:
    tx.execute(
        "UPDATE hook_runs SET outcome = ?, exit_code = ?, duration_ms = ?, said_bytes = ?"
        " WHERE id = ?",
        (outcome, exit_code, duration_ms, said_bytes, id_),
    )


def note_act(tx: Tx, id_: str, scope: str, outcome: str, client_message_id: str | None) -> None:
    """What was asked, and what became of it; never what was said."""
    act = {"at": tx.now, "scope": scope, "outcome": outcome, "client_message_id": client_message_id}
    tx.execute(
        "UPDATE hook_runs SET acts = json_insert(acts, '$[#]', json(?)) WHERE id = ?",
        (msgspec.json.encode(act).decode(), id_),
    )


def forget_running(tx: Tx) -> int:
    """At the start: what still runs by the table, ended with the process before."""
    return tx.execute("UPDATE hook_runs SET outcome = 'lost' WHERE outcome = 'running'").rowcount

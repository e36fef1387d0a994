"""Changes hook runs in the inbox's database."""

import msgspec

from appliance.kernel.batch import Tx


def begin(tx: Tx, id_: str, hook: str, event: str, mesh: str, truncated: bool) -> None:
    """Mark a run as running. Message runs are stored already, with their message."""
    tx.execute(
        "INSERT INTO hook_runs (id, at, hook, event, mesh, inbox_id, outcome, exit_code,"
        " duration_ms, truncated, said_bytes, acts)"
        " VALUES (?, ?, ?, ?, ?, NULL, 'running', NULL, 0, ?, 0, '[]') ON CONFLICT (id)"
        " DO UPDATE SET at = excluded.at, outcome = 'running', truncated = excluded.truncated",
        (id_, tx.now_ms, hook, event, mesh, truncated),
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
    """Record a requested send and its outcome, without the content."""
    act = {"at": tx.now, "scope": scope, "outcome": outcome, "client_message_id": client_message_id}
    tx.execute(
        "UPDATE hook_runs SET acts = json_insert(acts, '$[#]', json(?)) WHERE id = ?",
        (msgspec.json.encode(act).decode(), id_),
    )


def mark_lost(tx: Tx, outcome: str) -> int:
    """Mark runs as lost that the previous process had started."""
    return tx.execute(
        "UPDATE hook_runs SET outcome = 'lost' WHERE outcome = ?", (outcome,)
    ).rowcount

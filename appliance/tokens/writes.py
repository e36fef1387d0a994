"""Changes tokens, each in one transaction."""

from collections.abc import Iterable

import msgspec

from appliance.kernel import meta
from appliance.kernel.auth import SERVER_TOKEN_ID, TOKENS_MAX
from appliance.kernel.batch import Tx
from appliance.kernel.clock import DAY_MS
from appliance.tokens import queries, wire
from appliance.workspace import epochs


def create(tx: Tx, command: wire.CreateToken, digest: str) -> wire.Token:
    if tx.execute("SELECT count(*) FROM tokens").fetchone()[0] >= TOKENS_MAX:
        raise wire.TooManyTokens(details={"limit": TOKENS_MAX})
    existing = tx.execute(
        "SELECT id FROM tokens WHERE name = ? AND revoked_ms IS NULL"
        " AND (expires_ms IS NULL OR expires_ms > ?)",
        (command.name, tx.now_ms),
    ).fetchone()
    if existing is not None:
        raise wire.TokenNameTaken(details={"token_id": existing[0]})
    token_id = tx.new_id("tok_")
    days, senders = command.expires_days, command.senders
    expires_ms = None if days is None else tx.now_ms + max(1, int(days * DAY_MS))
    tx.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms, expires_ms, senders)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (token_id, command.name, digest, _names(command.scopes), tx.now_ms, expires_ms,
         None if senders is None else _names(senders)),
    )  # fmt: skip
    return queries.token(tx, token_id, tx.now_ms)


def _names(names: list[str]) -> str:
    """Return the names as JSON, sorted and without duplicates."""
    return msgspec.json.encode(sorted(set(names))).decode()


def revoke(tx: Tx, token_id: str) -> wire.Token:
    """Revoke a token and its former secret. Idempotent."""
    if token_id == SERVER_TOKEN_ID:
        raise wire.ServerTokenNotRevocable
    tx.execute("DELETE FROM retired WHERE token_id = ?", (token_id,))
    tx.execute(
        "UPDATE tokens SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL",
        (tx.now_ms, token_id),
    )
    return queries.token(tx, token_id, tx.now_ms)


def rotate(tx: Tx, token_id: str, digest: str, grace_ms: int) -> tuple[wire.Token, str]:
    """Replace the secret; the former secret stays valid for `grace_ms`, any earlier secret does
    not. Return the token and the former secret's hash."""
    if queries.token(tx, token_id, tx.now_ms).state != "active":
        raise wire.TokenNotActive(details={"token_id": token_id})
    until_ms = tx.now_ms + grace_ms
    (former,) = tx.execute("SELECT hash FROM tokens WHERE id = ?", (token_id,)).fetchone()
    tx.execute("DELETE FROM retired WHERE token_id = ?", (token_id,))
    tx.execute("INSERT INTO retired VALUES (?, ?, ?)", (former, token_id, until_ms))
    tx.execute("UPDATE tokens SET hash = ? WHERE id = ?", (digest, token_id))
    return queries.token(tx, token_id, tx.now_ms), former


def restore_secret(tx: Tx, token_id: str, former: str) -> None:
    """Undo a rotation that could not be finished."""
    tx.execute("DELETE FROM retired WHERE hash = ?", (former,))
    tx.execute("UPDATE tokens SET hash = ? WHERE id = ?", (former, token_id))


def set_epoch(tx: Tx, epoch: str) -> None:
    tx.execute(meta.SET, (epochs.KEY, epoch))


def record_use(tx: Tx, token_ids: Iterable[str], at_ms: int) -> None:
    tx.executemany(
        "UPDATE tokens SET last_used_ms = ?1 WHERE id = ?2 AND ifnull(last_used_ms, 0) < ?1",
        [(at_ms, token_id) for token_id in token_ids],
    )


def prune(tx: Tx, before_ms: int) -> int:
    """Delete tokens that ended before that time; return how many."""
    tx.execute("DELETE FROM sessions WHERE expires_ms < ?", (tx.now_ms,))
    ended = "(revoked_ms < ?1 OR expires_ms < ?1)"
    tx.execute(
        "DELETE FROM retired WHERE until_ms < ?2"
        f" OR token_id IN (SELECT id FROM tokens WHERE {ended})",
        (before_ms, tx.now_ms),
    )
    # Also deletes their sessions, as the schema declares.
    return tx.execute(f"DELETE FROM tokens WHERE {ended}", (before_ms,)).rowcount

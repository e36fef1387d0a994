"""Stores people whom an issuer signs in: a token each, whose secret nobody has."""

import msgspec

from appliance.kernel.auth import TOKENS_MAX, Principal
from appliance.kernel.batch import Tx
from appliance.tokens import queries, session_rows, wire

SIGNED_IN_MS = 12 * 3600 * 1000  # then the issuer says again who may sign in, with which rights


def sign_in(tx: Tx, person: Principal, digest: str, session: str) -> wire.Token:
    """Open a session for a person, and give the token the person's present rights. `digest` is the
    hash for a new token's secret, and `session` the session's. Raises PersonRevoked, and
    TokenNameTaken for a name that another token has."""
    until_ms = tx.now_ms + SIGNED_IN_MS
    taken = tx.execute(
        "SELECT id FROM tokens WHERE name = ?1 AND id <> ?2 AND revoked_ms IS NULL"
        " AND (expires_ms IS NULL OR expires_ms > ?3)",
        (person.name, person.id, tx.now_ms),
    ).fetchone()
    if taken is not None:
        raise wire.TokenNameTaken(details={"token_id": taken[0]})
    row = tx.execute("SELECT revoked_ms FROM tokens WHERE id = ?", (person.id,)).fetchone()
    if row is not None and row[0] is not None:
        raise wire.PersonRevoked(details={"token_id": person.id})
    count = tx.execute("SELECT count(*) FROM tokens").fetchone()[0]
    if row is None and count >= TOKENS_MAX:
        raise wire.TooManyTokens(details={"limit": TOKENS_MAX})
    scopes, senders = (
        msgspec.json.encode(names).decode() for names in (sorted(person.scopes), [person.name])
    )
    tx.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms, expires_ms, senders)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        " ON CONFLICT (id) DO UPDATE SET name = ?2, scopes = ?4, expires_ms = ?6, senders = ?7",
        (person.id, person.name, digest, scopes, tx.now_ms, until_ms, senders),
    )
    session_rows.insert(tx, "open", person.id, None, session, SIGNED_IN_MS)
    return queries.token(tx, person.id, tx.now_ms)

"""Stores sessions and one-time links in their table: a session has its token's rights.

A row belongs to one token secret. Once that secret is replaced or revoked, the session is
no longer valid, and nothing has to change the row.
"""

from typing import Literal

import msgspec

from appliance.kernel.auth import TOKENS_MAX, Principal, stored_principal
from appliance.kernel.batch import Tx
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader
from appliance.tokens import wire

PER_TOKEN_MAX = 32  # sessions per token, and as many links; one more ends the oldest
_UNTIL = (
    "min(s.expires_ms, ifnull(t.expires_ms, s.expires_ms), iif(s.token_hash = t.hash,"
    " s.expires_ms, ifnull(r.until_ms, 0)))"
)
_VALID = (
    " FROM sessions AS s JOIN tokens AS t ON t.id = s.token_id"
    " LEFT JOIN retired AS r ON r.hash = s.token_hash"
    f" WHERE s.state = 'open' AND t.revoked_ms IS NULL AND {_UNTIL} > ?1"
)


def in_force(reader: Executor, now_ms: int) -> list[tuple[str, Principal]]:
    """Return (hash, principal) for every valid session."""
    rows = reader.execute(
        f"SELECT s.hash, t.id, t.name, t.scopes, {_UNTIL}, t.senders, s.id {_VALID}"
        " ORDER BY s.created_ms DESC LIMIT ?2",
        (now_ms, TOKENS_MAX),
    ).fetchall()
    return [
        (digest, msgspec.structs.replace(stored_principal(digest, *token), session=session_id))
        for digest, *token, session_id in rows
    ]


def sessions(
    reader: Reader, now_ms: int, of: str | None, current: str, query: wire.SessionsQuery
) -> wire.SessionList:
    """Return a page of valid sessions for all tokens, or for one token `of`."""
    page, more = reader.page(
        f"SELECT s.id, t.id, t.name, s.created_ms, {_UNTIL}, t.last_used_ms {_VALID}"
        " AND (?2 IS NULL OR t.id = ?2) AND s.id > ?3 ORDER BY s.id LIMIT ?4",
        (now_ms, of, query.after, query.limit + 1),
        limit=query.limit,
        make=lambda row: wire.BrowserSession(
            row[0],
            row[1],
            row[2],
            iso(row[3]),
            iso(row[4]),
            row[0] == current,
            None if row[5] is None else iso(row[5]),
        ),
        size=lambda row: ROW_BYTES + text_bytes(row.token_name),
    )
    return wire.SessionList(page, more, page[-1].id if page else query.after)


def insert(
    tx: Tx,
    state: Literal["link", "open"],
    token_id: str,
    credential: str | None,
    digest: str,
    lifetime_ms: int,
) -> int:
    """Store a link or an open session with a token's rights; return when it expires. Both end with
    the secret behind `credential`."""
    until_ms = tx.now_ms + lifetime_ms
    token_hash = _find_secret(tx, token_id, credential)
    tx.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
        (tx.new_id("ses_"), token_id, token_hash, digest, state, tx.now_ms, until_ms),
    )
    tx.execute(
        "DELETE FROM sessions WHERE token_id = ?1 AND (state = 'open') = ?2 AND id NOT IN"
        " (SELECT id FROM sessions WHERE token_id = ?1 AND (state = 'open') = ?2"
        " ORDER BY id DESC LIMIT ?3)",
        (token_id, state == "open", PER_TOKEN_MAX),
    )
    return until_ms


def has_link(reader: Reader, link: str, now_ms: int) -> bool:
    sql = "SELECT 1 FROM sessions WHERE hash = ? AND state = 'link' AND expires_ms > ?"
    return reader.row(sql, (link, now_ms)) is not None


def open_by_link(tx: Tx, link: str, digest: str, lifetime_ms: int) -> None:
    """Open a session by a link, which nobody can use again."""
    row = tx.execute(
        "DELETE FROM sessions WHERE hash = ? AND state = 'link' AND expires_ms > ?"
        " RETURNING token_id, substr(token_hash, 1, 16)",
        (link, tx.now_ms),
    ).fetchone()
    if row is None:
        raise wire.InviteRefused
    token_id, credential = row
    insert(tx, "open", token_id, credential, digest, lifetime_ms)


def end(tx: Tx, session_id: str, of: str | None) -> None:
    """End a session. With `of`, only that token's."""
    ended = tx.execute(
        "DELETE FROM sessions WHERE id = ?1 AND state = 'open' AND (?2 IS NULL OR token_id = ?2)",
        (session_id, of),
    )
    if not ended.rowcount:
        raise wire.NoSuchSession(details={"session_id": session_id[:64]})


def _find_secret(tx: Tx, token_id: str, credential: str | None) -> str:
    """Return the token secret's hash behind `credential`, which begins that hash or a session
    hash. None: the newest secret. Raises CredentialRefused if the secret ended."""
    row = tx.execute(
        "SELECT s.token_hash FROM tokens AS t JOIN (SELECT id, hash, hash AS token_hash FROM tokens"
        " UNION ALL SELECT token_id, hash, hash FROM retired WHERE until_ms > ?3"
        " UNION ALL SELECT token_id, hash, token_hash FROM sessions WHERE state = 'open') AS s"
        " ON s.id = t.id"
        " WHERE t.id = ?1 AND substr(s.hash, 1, 16) = ifnull(?2, substr(t.hash, 1, 16))"
        " AND t.revoked_ms IS NULL AND ifnull(t.expires_ms, ?3 + 1) > ?3",
        (token_id, credential, tx.now_ms),
    ).fetchone()
    if row is None:
        raise wire.CredentialRefused(details={"token_id": token_id})
    return str(row[0])

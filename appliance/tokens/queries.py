"""Reads the token tables, in plain SQL: `agentlip token` also runs without peewee."""

from typing import Any

import msgspec

from appliance.kernel.auth import SERVER_TOKEN_ID, TOKENS_MAX, Principal, valid_tokens
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader
from appliance.tokens import session_rows, wire

_SELECT = (
    "SELECT id, name, scopes, created_ms, expires_ms, revoked_ms, last_used_ms, senders,"
    " (SELECT max(until_ms) FROM retired WHERE token_id = id AND until_ms > ?1) FROM tokens"
)
_names = msgspec.json.Decoder(list[str]).decode


def in_force(reader: Executor, now_ms: int) -> list[tuple[str, Principal]]:
    return [*valid_tokens(reader, now_ms), *session_rows.in_force(reader, now_ms)]


def server_hash(reader: Executor) -> str | None:
    row = reader.execute("SELECT hash FROM tokens WHERE id = ?", (SERVER_TOKEN_ID,)).fetchone()
    return None if row is None else str(row[0])


def tokens(reader: Reader, now_ms: int, after: str, limit: int) -> wire.TokenList:
    """Return a page of stored tokens, oldest first, after the position `after`: a token's time
    and id."""
    created, _, token_id = after.partition(".")
    limit = min(limit, TOKENS_MAX)
    page, more = reader.page(
        f"{_SELECT} WHERE (created_ms, id) > (?2, ?3) ORDER BY created_ms, id LIMIT ?4",
        (now_ms, int(created or -1), token_id, limit + 1),
        limit=limit,
        make=lambda row: row,
        size=lambda row: ROW_BYTES + text_bytes(row[1]) + text_bytes(row[2]) + text_bytes(row[7]),
    )
    last = f"{page[-1][3]}.{page[-1][0]}" if page else after
    return wire.TokenList([_token(row, now_ms) for row in page], more, last)


def token(reader: Executor, token_id: str, now_ms: int) -> wire.Token:
    row = reader.execute(f"{_SELECT} WHERE id = ?2", (now_ms, token_id)).fetchone()
    if row is None:
        raise wire.NoSuchToken(details={"token_id": token_id[:64]})
    return _token(row, now_ms)


def _token(row: Any, now_ms: int) -> wire.Token:
    id_, name, scopes, created, expires, revoked, used, senders, retired = row
    if revoked is not None:
        state = "revoked"
    else:
        state = "expired" if expires is not None and expires <= now_ms else "active"
    return wire.Token(
        id_, name, _names(scopes), state,
        iso(created), _iso(expires), _iso(revoked), _iso(used),
        _iso(retired) if state == "active" else None,
        None if senders is None else _names(senders),
    )  # fmt: skip


def _iso(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)

"""Checks tokens: early expiry, the token file, invalid table rows."""

import shlex
import sqlite3
from collections.abc import Iterator

import msgspec

from appliance.checks.cause import Cause
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.rows import RowRule, find_rows
from appliance.kernel.auth import ADMIN, SERVER_TOKEN_ID, hash_token
from appliance.kernel.clock import DAY_MS, HOUR_MS

TOLERANCE_MS = 60_000
EXPIRY_WARNING_MS = 7 * DAY_MS  # a week: somebody is at work before the clients get 401
_NEW_TOKEN = "agentlipd down; agentlip token rotate server; agentlipd up"


def _expiring(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    until_ms = now_ms + EXPIRY_WARNING_MS
    for _, connection in context.opened("auth"):
        rows = connection.execute(
            "SELECT id, name, scopes, expires_ms FROM tokens WHERE revoked_ms IS NULL"
            " AND expires_ms > ? AND expires_ms <= ? ORDER BY expires_ms",
            (now_ms, until_ms),
        )
        for token_id, name, scopes, expires_ms in rows:
            hours = (expires_ms - now_ms) / HOUR_MS
            left = f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
            yield EXPIRING.finding(
                f"token {token_id}",
                f"the token expires in {left}; clients using it will then receive 401",
                " ".join(
                    [f"agentlip token revoke {token_id} && agentlip token create"]
                    + [f"--name {shlex.quote(name)}"]
                    + [f"--scope {shlex.quote(scope)}" for scope in decode_scopes(scopes)]
                ),
            )


def _file(context: Context) -> Iterator[Finding]:
    """Check the token file. An empty or missing file is reported by host.token."""
    token = context.datadir.read_token()
    for connection in context.with_tables("auth", "tokens"):
        row = connection.execute(
            "SELECT hash FROM tokens WHERE id = ?", (SERVER_TOKEN_ID,)
        ).fetchone()
        if token is None or row is None or row[0] == hash_token(token):
            return
        if context.lock().held:
            yield FOREIGN.finding(
                context.datadir.token_file.name,
                f"the running hub does not know {_kind(connection, token)}; clients that read it"
                " receive 401",
            )
        else:
            yield FOREIGN.finding(
                context.datadir.token_file.name,
                f"the file holds {_kind(connection, token)}; the next start accepts that token "
                "instead of the former one",
                severity=Severity.WARNING,
            )


def _kind(connection: sqlite3.Connection, token: str) -> str:
    digest = hash_token(token)
    if connection.execute("SELECT 1 FROM tokens WHERE hash = ?", (digest,)).fetchone():
        return "another token in this workspace"
    if connection.execute("SELECT 1 FROM retired WHERE hash = ?", (digest,)).fetchone():
        return "a token that was rotated"
    return "a token that this workspace has not issued"


def _admin(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    for connection in context.with_tables("auth", "tokens"):
        rows = connection.execute(
            "SELECT scopes, expires_ms, revoked_ms FROM tokens LIMIT 10000"
        ).fetchall()
        if rows and not any(
            ADMIN in decode_scopes(scopes) and revoked is None and (expires or now_ms + 1) > now_ms
            for scopes, expires, revoked in rows
        ):
            yield NO_ADMIN.finding(
                "tokens",
                "no token with the scope admin is left, so nobody can manage the appliance over"
                " HTTP",
            )


def decode_scopes(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return []


EXPIRING = Problem("expiring")
FOREIGN = Problem("foreign", Severity.ERROR, hint=_NEW_TOKEN)
NO_ADMIN = Problem("no-admin", Severity.ERROR, hint="agentlipd restart")
USED_AFTER_END = Problem("used-after-end", hint="agentlip token list")
CAUSES = (Cause("host.clock:past", ("tokens.*:*",)),)
CHECKS = (
    Check(
        name="tokens.expiring", inspects="no token expires within the next days", find=_expiring,
        problems=(EXPIRING,),
    ),
    Check(
        name="tokens.file", inspects="the token file holds this workspace's token", find=_file,
        problems=(FOREIGN,),
    ),
    Check(
        name="tokens.admin", inspects="a token with the scope admin is left", find=_admin,
        problems=(NO_ADMIN,),
    ),
    Check(
        name="tokens.ended",
        inspects="no token was used after its end",
        find=find_rows(
            "auth",
            RowRule(
                USED_AFTER_END,
                "SELECT id, last_used_ms, min(coalesce(expires_ms, revoked_ms),"
                " coalesce(revoked_ms, expires_ms)) AS ended FROM tokens"
                f" WHERE last_used_ms > ended + {TOLERANCE_MS} ORDER BY id",
                "token {0}",
                "the token was used at {1}, after its end at {2}: the clock was set, or another"
                " program changed the store",
                ("tokens",),
                times=(1, 2),
            ),
        ),
        problems=(USED_AFTER_END,),
    ),
)  # fmt: skip

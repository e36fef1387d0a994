"""Checks of tokens: those that expire soon."""

import shlex
from collections.abc import Iterator

from appliance.checks.check import Check, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel.clock import DAY_MS
from doctor.checks.tokens_file import decode_scopes


def _expiring(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    until_ms = now_ms + int(context.settings.token_expiry_warning_days * DAY_MS)
    for _, connection in context.opened("auth"):
        rows = connection.execute(
            "SELECT id, name, scopes, expires_ms FROM tokens WHERE revoked_ms IS NULL"
            " AND expires_ms > ? AND expires_ms <= ? ORDER BY expires_ms",
            (now_ms, until_ms),
        )
        for token_id, name, scopes, expires_ms in rows:
            hours = (expires_ms - now_ms) / 3_600_000
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


EXPIRING = Problem(
    "expiring",
    "Clients that use the token will receive 401.",
    "Revoke it, create a new one with the same name and scopes, and give it to the clients.",
)
CHECKS = (
    Check(
        name="tokens.expiring",
        inspects="no token expires within the next days",
        find=_expiring,
        reads="the tokens in `auth.sqlite3` and when they expire",
        problems=(EXPIRING,),
    ),
)

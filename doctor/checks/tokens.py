"""Tokens: none ends before somebody has noticed."""

import shlex
from collections.abc import Iterator

from doctor.check import Check, Context, Finding, Severity

DAY_MS = 86_400_000


def _expiring(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    until_ms = now_ms + int(context.settings.token_expiry_warning_days * DAY_MS)
    for _, connection in context.opened("auth"):
        rows = connection.execute(
            "SELECT id, name, expires_ms FROM tokens WHERE revoked_ms IS NULL"
            " AND expires_ms > ? AND expires_ms <= ? ORDER BY expires_ms",
            (now_ms, until_ms),
        ).fetchmany(context.settings.findings_max + 1)
        for token_id, name, expires_ms in rows:
            hours = (expires_ms - now_ms) / 3_600_000
            left = f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
            yield Finding(
                Severity.WARNING,
                f"token {token_id}",
                f"it ends in {left}, and who uses it is refused then",
                f"agentlip token revoke {token_id}; agentlip token create"
                f" --name {shlex.quote(name)} --scope …",
            )


CHECKS = (
    Check(name="tokens.expiring", inspects="no token ends within the next days", find=_expiring),
)

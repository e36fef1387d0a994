"""Restores tokens: no token comes back that was revoked since the backup, and no secret that was
replaced. Browsers sign in again."""

import sqlite3

from appliance.tokens.loops import ENDED_KEPT_MS
from appliance.workspace.restoring import RestoreContext

_BOTH = "FROM tokens AS r JOIN present.tokens AS p ON p.id = r.id WHERE r.revoked_ms IS NULL"
_GONE = "FROM tokens AS r WHERE r.id NOT IN (SELECT id FROM present.tokens)"


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    context.notice_revoked("token", f"SELECT r.id, r.name {_BOTH} AND p.revoked_ms IS NOT NULL")
    context.notice_revoked(
        "a token's former secret",
        f"SELECT r.id, r.name {_BOTH} AND p.revoked_ms IS NULL AND p.hash <> r.hash",
    )
    context.notice(
        "lost",
        "token",
        "SELECT p.id, p.name FROM present.tokens AS p WHERE p.id NOT IN (SELECT id FROM tokens)",
    )
    # Whether tokens that were revoked since the backup may have been removed already. If not, a
    # token that is missing was created after the backup that an earlier restore brought back.
    pruned = context.now_ms - context.cut_ms >= ENDED_KEPT_MS
    unknown = f"SELECT r.id, r.name {_GONE}"
    if pruned:
        context.notice_revoked("token that is not known here", unknown)
    else:
        context.notice("valid-again", "token that is not known here", unknown)
    connection.execute("DELETE FROM sessions")  # one that was ended must not be valid again
    if context.revive:
        return
    context.carry(
        "UPDATE tokens SET revoked_ms = p.revoked_ms, hash = p.hash FROM present.tokens AS p"
        " WHERE p.id = tokens.id AND tokens.revoked_ms IS NULL"
    )
    if pruned:
        context.carry(
            "UPDATE tokens SET revoked_ms = ? WHERE revoked_ms IS NULL"
            " AND id NOT IN (SELECT id FROM present.tokens)",
            context.now_ms,
        )
    connection.execute("DELETE FROM retired")
    context.carry(
        "INSERT INTO retired SELECT p.hash, p.token_id, p.until_ms FROM present.retired AS p"
        " JOIN tokens ON tokens.id = p.token_id AND tokens.revoked_ms IS NULL"
    )

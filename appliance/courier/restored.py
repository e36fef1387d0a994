"""Restores the courier: what is lost and offered again.

Leases are in memory only, so every envelope in the backup can be leased again.
"""

import sqlite3

from appliance.workspace.restoring import RestoreContext

# Envelopes have no index by id: one pass each.
_LOST = (
    "SELECT p.stream || '/' || p.id, p.stream FROM present.journal AS p"
    " WHERE (p.stream, p.id) NOT IN (SELECT stream, id FROM main.journal)"
)
_AGAIN = (
    "SELECT r.stream || '/' || r.id, r.stream FROM main.journal AS r"
    " WHERE r.reason IS NULL AND (r.stream, r.id) NOT IN (SELECT stream, id FROM present.journal)"
)


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    del connection
    context.notice("lost", "envelope", _LOST)
    context.notice("sent-again", "envelope", _AGAIN)

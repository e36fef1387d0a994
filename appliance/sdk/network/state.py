"""Stores what an agent has to keep: pinned keys, messages to others, messages received.

One SQLite file, which several processes may use at once, for example a program and the command
line. The relay's data can't replace the file, so a damaged file is refused. Facts that the relay
has are in the cache (`peers.py`).
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.kernel.errors import Unavailable
from appliance.kernel.ownership import open_own

BUSY_SECONDS = 10.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)"
    " STRICT",
    # offered: another key, which the relay shows for this agent and nobody has accepted
    "CREATE TABLE IF NOT EXISTS pins (agent TEXT PRIMARY KEY NOT NULL, key TEXT NOT NULL,"
    " verified INTEGER NOT NULL, offered TEXT) STRICT",
    # each agent's last entry in the relay's key log
    "CREATE TABLE IF NOT EXISTS key_log (agent TEXT PRIMARY KEY NOT NULL, key TEXT NOT NULL,"
    " event TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS revoked (agent TEXT PRIMARY KEY NOT NULL) STRICT",
    # set_aside: the question about this request ended without an answer
    "CREATE TABLE IF NOT EXISTS requests (agent TEXT PRIMARY KEY NOT NULL, public_key TEXT NOT"
    " NULL, email TEXT NOT NULL, greeting TEXT NOT NULL, created_at TEXT NOT NULL, seen_ms INTEGER"
    " NOT NULL, set_aside INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS blocked (agent TEXT PRIMARY KEY NOT NULL) STRICT",
    # key: the fingerprint of the admin key that verified it
    "CREATE TABLE IF NOT EXISTS broadcasts (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT"
    " NULL, type TEXT NOT NULL, sender TEXT NOT NULL, time TEXT NOT NULL, payload TEXT NOT NULL,"
    " signature TEXT NOT NULL UNIQUE, key TEXT NOT NULL, received_ms INTEGER NOT NULL) STRICT",
    # attempts: JSON; receipt_ms: when the recipient's receipt came; shared_id: the messageId that
    # all members of a group get
    "CREATE TABLE IF NOT EXISTS outgoing (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " recipient TEXT NOT NULL, type TEXT NOT NULL, payload TEXT, status TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, due_ms INTEGER NOT NULL, attempts TEXT NOT NULL,"
    " receipt_ms INTEGER, group_id TEXT, shared_id TEXT) STRICT",
    "CREATE INDEX IF NOT EXISTS outgoing_status ON outgoing (status, due_ms)",
    # The newest row seen in each group's log. refused: the relay's log does not continue it.
    "CREATE TABLE IF NOT EXISTS group_heads (group_id TEXT PRIMARY KEY NOT NULL, at TEXT NOT NULL,"
    " hash TEXT NOT NULL, refused INTEGER NOT NULL) STRICT",
    # claimed_until_ms: null once the message was handed over
    "CREATE TABLE IF NOT EXISTS incoming (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " sender TEXT NOT NULL, id TEXT NOT NULL, at_ms INTEGER NOT NULL, claimed_until_ms INTEGER,"
    " timestamp TEXT NOT NULL, payload TEXT, group_id TEXT, UNIQUE (sender, id)) STRICT",
)


class AgentStateDamaged(Unavailable):
    code = "AGENT_STATE_DAMAGED"
    default_message = "the agent's file state.sqlite3 can't be read or written"
    default_hint = (
        "if the file is damaged, move it away: messages that wait are lost, and "
        "contacts' keys have to be compared again"
    )


class AgentState:
    """Safe for many threads: one transaction at a time."""

    def __init__(self, path: Path) -> None:
        """Open the state. Raises AgentStateDamaged."""
        self._lock = threading.Lock()
        try:
            os.close(open_own(path, os.O_RDWR | os.O_CREAT))
            self._database = sqlite3.connect(
                path, BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode = WAL")
        except (OSError, sqlite3.Error):
            raise AgentStateDamaged from None
        with self.transaction() as tx:
            for statement in _TABLES:
                tx.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make the block's changes together, or not at all. Raises AgentStateDamaged."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database
                self._database.execute("COMMIT")
            except sqlite3.Error:
                self._undo()
                raise AgentStateDamaged from None
            except BaseException:
                self._undo()
                raise

    def cursor(self, name: str) -> str:
        with self.transaction() as tx:
            row = tx.execute("SELECT value FROM cursors WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def set_cursor(self, name: str, value: str) -> None:
        with self.transaction() as tx:
            tx.execute("INSERT OR REPLACE INTO cursors (name, value) VALUES (?, ?)", (name, value))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _undo(self) -> None:
        with suppress(sqlite3.Error):
            self._database.execute("ROLLBACK")

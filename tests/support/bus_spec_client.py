"""A client of the worker bus written from the specification alone, with plain sqlite3."""

import sqlite3
import time
import uuid

LEASE_MS = 60_000


def open_bus(path):
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("busy_timeout = 5000", "foreign_keys = ON", "journal_mode = WAL",
                   "synchronous = NORMAL"):  # fmt: skip
        db.execute(f"PRAGMA {pragma}").fetchall()
    return db


def now():
    return int(time.time() * 1000)


def publish(db, agent, type_, payload=None, to=None):
    db.execute(
        "INSERT INTO messages (id, ts_ms, from_agent, to_agent, type, payload)"
        " VALUES (?, ?, ?, ?, ?, ?)", (str(uuid.uuid4()), now(), agent, to, type_, payload),
    )  # fmt: skip


def poll(db, agent, limit=100):
    row = db.execute("SELECT last_acked_seq FROM cursors WHERE agent_id = ?", (agent,)).fetchone()
    return db.execute(
        "SELECT seq, id, payload FROM messages WHERE seq > ? AND (to_agent IS NULL OR to_agent = ?)"
        " ORDER BY seq LIMIT ?", (row[0] if row else 0, agent, limit),
    ).fetchall()  # fmt: skip


def ack(db, agent, seq):
    db.execute(
        "INSERT INTO cursors VALUES (?, ?, ?) ON CONFLICT (agent_id) DO UPDATE SET last_acked_seq ="
        " MAX(cursors.last_acked_seq, excluded.last_acked_seq),"
        " updated_at_ms = excluded.updated_at_ms", (agent, seq, now()),
    )  # fmt: skip


def claim(db, agent, task, lease_ms=LEASE_MS):
    db.execute("BEGIN IMMEDIATE")
    row = db.execute("SELECT lease_until_ms FROM task_claims WHERE task_id = ?", (task,)).fetchone()
    if row and row[0] > now():
        db.execute("ROLLBACK")
        return False
    db.execute("DELETE FROM task_claims WHERE task_id = ?", (task,))
    db.execute(
        "INSERT INTO task_claims VALUES (?, ?, ?, ?)", (task, agent, now(), now() + lease_ms)
    )
    db.execute("COMMIT")
    return True


def renew(db, agent, task, lease_ms=LEASE_MS):
    query = "UPDATE task_claims SET lease_until_ms = ? WHERE task_id = ? AND claimed_by = ?"
    return db.execute(query, (now() + lease_ms, task, agent)).rowcount > 0


def release(db, agent, task):
    db.execute("DELETE FROM task_claims WHERE task_id = ? AND claimed_by = ?", (task, agent))

"""Adds messages to the search indexes, inside a writer's transaction.

Indexing many messages in one statement and commit costs a third of single insertions. Each index
stores the last indexed rowid: every message up to that one is in the index, none above.
"""

import sqlite3

from appliance.hub import cjk
from appliance.kernel.batch import Tx

PIECE_CHARACTERS_MAX = 8 << 20  # characters indexed at once; about 300 ms
CHANGED_MAX = 200  # changed messages reindexed at once
BEYOND_ASCII = "length(content_raw) <> length(CAST(content_raw AS BLOB))"


def index_messages(tx: Tx, messages_max: int) -> int:
    """Index at most `messages_max` new messages; returns how many. 0 without an index."""
    try:
        (indexed,) = tx.execute("SELECT indexed FROM x_fts").fetchone()
    except sqlite3.OperationalError:  # no such table: this SQLite has no FTS5
        return 0
    count, last = _piece(tx, indexed, messages_max)
    if count:
        tx.execute(
            "INSERT INTO messages_fts (rowid, content_raw)"
            " SELECT rowid, content_raw FROM messages WHERE rowid > ? AND rowid <= ?",
            (indexed, last),
        )
        tx.execute("UPDATE x_fts SET indexed = ?", (last,))
    follow_changes(tx)
    return max(count, _index_pairs(tx, last or indexed, messages_max))


def keep_up(tx: Tx, messages_max: int) -> bool:
    """Index new messages; returns whether more are waiting."""
    if not index_messages(tx, messages_max):
        return False
    (left,) = tx.execute(
        "SELECT (SELECT max(rowid) FROM messages) >"
        " min((SELECT indexed FROM x_fts), (SELECT indexed FROM x_cjk))"
    ).fetchone()
    return bool(left)


def follow_changes(tx: Tx) -> None:
    """Update the pair index for messages that were changed."""
    try:
        changed = tx.execute(
            "SELECT c.message, c.old_content, m.content_raw FROM x_cjk_changed AS c"
            " LEFT JOIN messages AS m ON m.rowid = c.message LIMIT ?",
            (CHANGED_MAX,),
        ).fetchall()
    except sqlite3.OperationalError:  # no such table
        return
    for message, old, new in changed:
        if cjk.contains(old):
            tx.execute(
                "INSERT INTO x_cjk_messages (x_cjk_messages, rowid, pairs) VALUES ('delete', ?, ?)",
                (message, cjk.pairs(old)),
            )
        _add(tx, [(message, new or "")])
        tx.execute("DELETE FROM x_cjk_changed WHERE message = ?", (message,))


def _index_pairs(tx: Tx, until: int, messages_max: int) -> int:
    (indexed,) = tx.execute("SELECT indexed FROM x_cjk").fetchone()
    count, last = _piece(tx, indexed, messages_max)
    if not count or indexed >= until:
        return 0
    last = min(last, until)
    rows = tx.execute(
        "SELECT rowid, content_raw FROM messages WHERE rowid > ? AND rowid <= ?"
        f" AND {BEYOND_ASCII}",
        (indexed, last),
    )
    _add(tx, rows.fetchall())
    tx.execute("UPDATE x_cjk SET indexed = ?", (last,))
    return count


def _piece(tx: Tx, indexed: int, messages_max: int) -> tuple[int, int]:
    """Return how many messages the next batch has, and its last rowid."""
    count = last = 0
    left = PIECE_CHARACTERS_MAX
    sizes = tx.execute(
        "SELECT rowid, length(content_raw) FROM messages WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (indexed, messages_max),
    )
    for number, size in sizes.fetchall():
        last = number
        count += 1
        left -= size
        if left <= 0:
            break
    return count, last


def _add(tx: Tx, messages: list[tuple[int, str]]) -> None:
    for number, text in messages:
        if cjk.contains(text):
            tx.execute(
                "INSERT INTO x_cjk_messages (rowid, pairs) VALUES (?, ?)", (number, cjk.pairs(text))
            )

"""Takes messages into the search indexes, inside a writer's transaction.

Many in one statement and one commit cost a third of what one by one does. Each index has a mark:
every message up to that rowid is in it, none above.
"""

import sqlite3

from appliance.hub import cjk
from appliance.kernel.batch import Tx

PIECE_CHARACTERS_MAX = 8 << 20  # of texts taken in at once; some 300 ms
CHANGED_MAX = 200  # messages that other programs have changed, followed at once
BEYOND_ASCII = "length(content_raw) <> length(CAST(content_raw AS BLOB))"


def index_messages(tx: Tx, most: int) -> int:
    """Take at most `most` new messages in; how many it were. 0 where there is no index."""
    try:
        (indexed,) = tx.execute("SELECT indexed FROM x_fts").fetchone()
    except sqlite3.OperationalError:  # no such table: this SQLite has no FTS5
        return 0
    count, last = _piece(tx, indexed, most)
    if count:
        tx.execute(
            "INSERT INTO messages_fts (rowid, content_raw)"
            " SELECT rowid, content_raw FROM messages WHERE rowid > ? AND rowid <= ?",
            (indexed, last),
        )
        tx.execute("UPDATE x_fts SET indexed = ?", (last,))
    follow_changes(tx)
    return max(count, _index_pairs(tx, last or indexed, most))


def keep_up(tx: Tx, most: int) -> bool:
    """Take messages in; whether some are left."""
    if not index_messages(tx, most):
        return False
    (left,) = tx.execute(
        "SELECT (SELECT max(rowid) FROM messages) >"
        " min((SELECT indexed FROM x_fts), (SELECT indexed FROM x_cjk))"
    ).fetchone()
    return bool(left)


def follow_changes(tx: Tx) -> None:
    """The index of pairs follows messages that were changed."""
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


def _index_pairs(tx: Tx, until: int, most: int) -> int:
    (indexed,) = tx.execute("SELECT indexed FROM x_cjk").fetchone()
    count, last = _piece(tx, indexed, most)
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


def _piece(tx: Tx, indexed: int, most: int) -> tuple[int, int]:
    """How many messages the next piece has, and the last rowid of it."""
    count = last = 0
    left = PIECE_CHARACTERS_MAX
    sizes = tx.execute(
        "SELECT rowid, length(content_raw) FROM messages WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (indexed, most),
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

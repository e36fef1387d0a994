"""Searches a table of texts: through its FTS5 index and past its end, or without one by LIKE.

The index may lag behind the table (its mark says how far it reaches). Rows above the mark
are looked through too, so that a row is found from the moment it is committed:

    rows above the mark    those that may match, by LIKE, go into an index in memory, so that
                           the same tokenizer decides
    rows in the index      the newest that match
    both, if they are few  ranked by bm25 among themselves; else the newest first

Ranking among the matches, not against all texts: for that SQLite reads all places of every
word, and the order would change when the mark moves.

All in one read transaction: no row is missed or found twice while the mark moves.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from appliance.kernel.searchquery import Query

RANKED_MAX = 500  # more matches: a rank says little
RANKED_BYTES_MAX = 1 << 20  # of their texts; some 40 ms
CHUNK_ROWS = 500  # rows above the mark looked through at once
SNIPPET_WORDS = 24
SNIPPET_CHARACTERS = 160
ELLIPSIS = "…"

Text = tuple[int, str]  # rowid, text
Sql = tuple[str, Sequence[Any]]  # a condition and its parameters


class Source(msgspec.Struct, frozen=True):
    """A table `m` with a column of text; its external-content index; the table of its mark."""

    table: str
    column: str
    index: str
    mark: str


class Found(msgspec.Struct, frozen=True):
    """Rows, the best first, each with the piece of text that matched."""

    rows: list[tuple[Any, ...]]
    snippets: list[str]
    fts_used: bool
    has_more: bool


def find(
    connection: sqlite3.Connection,
    source: Source,
    query: Query,
    columns: str,
    where: Sql,
    limit: int,
) -> Found:
    """At most `limit` rows for which `where` holds too; it speaks of the table as `m`."""
    most = max(limit, RANKED_MAX) + 1
    with _one_moment(connection):
        mark = _mark(connection, source)
        if mark is None:
            return _find_by_like(connection, source, query, columns, where, limit)
        above = _above(connection, source, query, mark, where, most)
        indexed = _indexed(connection, source, query, where, most - len(above))
        numbers = [number for number, _ in above] + indexed
        if 1 < len(numbers) <= RANKED_MAX:
            matches = above + [row[:2] for row in _rows(connection, source, "NULL", indexed)]
            numbers = _ranked(query, matches) or numbers
        rows = _rows(connection, source, columns, numbers[:limit])
    texts = [(number, text) for number, text, *_ in rows]
    snippets = dict(_matching(query, texts))
    return Found(
        [row[2:] for row in rows],
        [snippets.get(number, "") for number, _ in texts],
        True,
        len(numbers) > limit,
    )


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _mark(connection: sqlite3.Connection, source: Source) -> int | None:
    """How far the index reaches; None without an index, or without FTS5 to read it."""
    try:
        connection.execute(f"SELECT 1 FROM {source.index} LIMIT 0").fetchall()
        row = connection.execute(f"SELECT indexed FROM {source.mark}").fetchone()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_ERROR", "SQLITE_AUTH"):
            return None  # no such table, or no such module
        raise
    return None if row is None else int(row[0])


# -- above the mark ------------------------------------------------------------------------


def _above(
    connection: sqlite3.Connection, source: Source, query: Query, mark: int, where: Sql, most: int
) -> list[Text]:
    """The newest rows that match and are not in the index."""
    maybe, patterns = query.maybe(f"m.{source.column}")
    # A text with characters beyond ASCII may match what LIKE can't see.
    beyond = f"length(m.{source.column}) <> length(CAST(m.{source.column} AS BLOB))"
    candidates = connection.execute(
        f"SELECT m.rowid, m.{source.column} FROM {source.table} AS m"
        f" WHERE m.rowid > ? AND {where[0]} AND ({maybe} OR {beyond}) ORDER BY m.rowid DESC",
        (mark, *where[1], *patterns),
    )
    found: list[Text] = []
    with closing(candidates):
        while len(found) < most and (chunk := candidates.fetchmany(CHUNK_ROWS)):
            matching = {number for number, _ in _matching(query, chunk)}
            found += [text for text in chunk if text[0] in matching]
    return found[:most]


# -- in the index --------------------------------------------------------------------------


def _indexed(
    connection: sqlite3.Connection, source: Source, query: Query, where: Sql, most: int
) -> list[int]:
    # The index drives: SQLite must not walk the table and ask the index row by row.
    found = connection.execute(
        f"SELECT f.rowid FROM {source.index} AS f"
        f" CROSS JOIN {source.table} AS m ON m.rowid = f.rowid"
        f" WHERE {source.index} MATCH ? AND {where[0]} ORDER BY f.rowid DESC LIMIT ?",
        (query.match, *where[1], most),
    )
    return [number for (number,) in found]


# -- an index in memory --------------------------------------------------------------------


def _matching(query: Query, texts: Iterable[Text]) -> list[Text]:
    """Those of `texts` that match, with a snippet in place of the text."""
    return _ask(
        texts,
        "SELECT rowid, snippet(t, 0, '', '', ?, ?) FROM t WHERE t MATCH ?",
        (ELLIPSIS, SNIPPET_WORDS, query.match),
    )


def _ranked(query: Query, matches: list[Text]) -> list[int]:
    """The best first, then the newest; empty where they are too long to compare."""
    if sum(len(text) for _, text in matches) > RANKED_BYTES_MAX:
        return []
    best = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid DESC"
    return [number for (number,) in _ask(matches, best, (query.match,))]


def _ask(texts: Iterable[Text], question: str, parameters: Sequence[Any]) -> list[Any]:
    texts = list(texts)
    if not texts:
        return []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
        connection.executemany("INSERT INTO t(rowid, x) VALUES (?, ?)", texts)
        return connection.execute(question, parameters).fetchall()


# -- what was found ------------------------------------------------------------------------


def _rows(
    connection: sqlite3.Connection, source: Source, columns: str, numbers: list[int]
) -> list[tuple[Any, ...]]:
    """Rowid, text and `columns` of these rows, in this order."""
    found = {
        row[0]: row
        for row in connection.execute(
            f"SELECT m.rowid, m.{source.column}, {columns} FROM {source.table} AS m"
            f" WHERE m.rowid IN ({','.join('?' * len(numbers))})",
            numbers,
        )
    }
    return [found[number] for number in numbers]


# -- without an index ----------------------------------------------------------------------


def _find_by_like(
    connection: sqlite3.Connection,
    source: Source,
    query: Query,
    columns: str,
    where: Sql,
    limit: int,
) -> Found:
    condition, patterns = query.like(f"m.{source.column}")
    rows = connection.execute(
        f"SELECT m.{source.column}, {columns} FROM {source.table} AS m"
        f" WHERE {where[0]} AND {condition} ORDER BY m.rowid DESC LIMIT ?",
        (*where[1], *patterns, limit + 1),
    ).fetchall()
    shown = rows[:limit]
    snippets = [_around(query, text) for text, *_ in shown]
    return Found([row[1:] for row in shown], snippets, False, len(rows) > limit)


def _around(query: Query, text: str) -> str:
    """The first term that occurs, and what stands around it."""
    lower = text.lower()
    terms = [term.lower() for terms in query.alternatives for term in terms]
    places = [place for term in terms if (place := lower.find(term)) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_CHARACTERS // 4)
    end = start + SNIPPET_CHARACTERS
    return (
        (ELLIPSIS if start else "")
        + text[start:end].strip()
        + (ELLIPSIS if end < len(text) else "")
    )

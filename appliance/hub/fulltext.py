"""Searches a table of texts: through its FTS5 index and past its end, or by letters
where there is none.

The index may lag behind the table (its mark says how far it reaches). Rows above the mark
are looked through too, so that a row is found from the moment it is committed:

    rows above the mark    those that may match, by their letters, go into an index in memory, so
                           that the same tokenizer decides
    rows in the index      the newest that match; and those that match in the index of pairs, which
                           finds words inside Chinese, Japanese and Korean text (`cjk.py`)
    both, if they are few  ranked by bm25 among themselves; else the newest first

Ranking among the matches, not against all texts: for that SQLite reads all places of every
word, and the order would change when the mark moves.

All in one read transaction: no row is missed or found twice while the mark moves. Texts are read
one at a time and in pieces of limited size, and `limit` is asked between them, so a search stops
at its deadline whatever the texts are.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from appliance.hub import cjk
from appliance.hub.search_query import Query
from appliance.hub.snippet import Snippets
from appliance.kernel.page import ROW_BYTES, take_page, text_bytes
from appliance.kernel.readlimit import ReadLimit

RANKED_MAX = 500  # more matches: a rank says little
RANKED_CHARACTERS_MAX = 1 << 20  # of their texts; some 40 ms
CHUNK_ROWS = 500  # rows above the mark looked through at once
CHUNK_CHARACTERS = 1 << 18

Text = tuple[int, str]  # rowid, text
Sql = tuple[str, Sequence[Any]]  # a condition and its parameters


class Source(msgspec.Struct, frozen=True):
    """A table `m` with a column of text; its external-content index; the table of its mark.

    `pairs` is the index of pairs. It may be missing.
    """

    table: str
    column: str
    index: str
    mark: str
    pairs: str


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
    rows_max: int,
    limit: ReadLimit,
) -> Found:
    """At most `rows_max` rows and one page of bytes, that also match `where`, in which
    the table is named `m`."""
    search = _Search(connection, source, query, where, limit)
    with _one_moment(connection):
        mark = search.mark()
        if not query.alternatives:
            return Found([], [], mark is not None, False)
        if mark is None:
            return search.without_index(columns, rows_max)
        numbers = search.numbers(mark, max(rows_max, RANKED_MAX) + 1)
        return search.page(columns, numbers, rows_max)


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class _Search:
    """One search in one read transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        source: Source,
        query: Query,
        where: Sql,
        limit: ReadLimit,
    ) -> None:
        self._execute = connection.execute
        self._source = source
        self._query = query
        self._where = where
        self._limit = limit
        self._snippets = Snippets(query.terms)

    def mark(self) -> int | None:
        """How far the index reaches; None without an index, or without FTS5 to read it."""
        if not self._is_there(self._source.index):
            return None
        try:
            row = self._execute(f"SELECT indexed FROM {self._source.mark}").fetchone()
        except sqlite3.OperationalError as error:
            if _is_missing(error):
                return None
            raise
        return None if row is None else int(row[0])

    def _is_there(self, index: str) -> bool:
        try:
            self._execute(f"SELECT 1 FROM {index} LIMIT 0").fetchall()
        except sqlite3.DatabaseError as error:
            if _is_missing(error):
                return False
            raise
        return True

    def numbers(self, mark: int, most: int) -> list[int]:
        """Rowids of at most `most` matches: the best first if they are few, else the newest."""
        found = self._above(mark, most)
        if len(found) < most:
            indexed = set(self._indexed(self._source.index, self._query.match, mark, most))
            if self._is_there(self._source.pairs):
                indexed.update(
                    self._indexed(self._source.pairs, self._query.match_pairs, mark, most)
                )
            found += sorted(indexed, reverse=True)[: most - len(found)]
        if 1 < len(found) <= RANKED_MAX:
            return self._ranked(found) or found
        return found

    # -- above the mark ----------------------------------------------------------------------

    def _above(self, mark: int, most: int) -> list[int]:
        """The newest rows that match and are not in the index."""
        source, where = self._source, self._where
        maybe, parameters = self._query.maybe(f"m.{source.column}")
        # A text with characters beyond ASCII may match where its letters say nothing.
        beyond = f"length(m.{source.column}) <> length(CAST(m.{source.column} AS BLOB))"
        candidates = self._execute(
            f"SELECT m.rowid, m.{source.column} FROM {source.table} AS m"
            f" WHERE m.rowid > ? AND {where[0]} AND ({maybe} OR {beyond}) ORDER BY m.rowid DESC",
            (mark, *where[1], *parameters),
        )
        found: list[int] = []
        with closing(candidates):
            for chunk in _chunks(candidates):
                found += self._in_memory(chunk, "SELECT rowid FROM t WHERE t MATCH ?")
                if len(found) >= most:
                    break
        return sorted(found, reverse=True)[:most]

    # -- in the index ------------------------------------------------------------------------

    def _indexed(self, index: str, match: str, mark: int, most: int) -> list[int]:
        # The index drives: SQLite must not walk the table and ask the index row by row.
        source, where = self._source, self._where
        found = self._execute(
            f"SELECT f.rowid FROM {index} AS f CROSS JOIN {source.table} AS m ON m.rowid = f.rowid"
            f" WHERE {index} MATCH ? AND f.rowid <= ? AND {where[0]}"
            " ORDER BY f.rowid DESC LIMIT ?",
            (match, mark, *where[1], most),
        )
        return [number for (number,) in found]

    # -- an index in memory ------------------------------------------------------------------

    def _ranked(self, numbers: list[int]) -> list[int]:
        """The best first, then the newest; empty where they are too long to compare."""
        texts: list[Text] = []
        left = RANKED_CHARACTERS_MAX
        for number in numbers:
            ((text,),) = self._row(number, f"m.{self._source.column}")
            left -= len(text)
            if left < 0:
                return []
            texts.append((number, text))
        return self._in_memory(
            texts, "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid DESC"
        )

    def _in_memory(self, texts: Sequence[Text], question: str) -> list[int]:
        query = self._query
        match = f"(x : ({query.match})) OR (pairs : ({query.match_pairs}))"
        with self._limit.in_memory() as connection:
            connection.execute("BEGIN")
            connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, pairs)")
            for number, text in texts:
                pairs = cjk.pairs(text) if cjk.contains(text) else ""
                connection.execute(
                    "INSERT INTO t(rowid, x, pairs) VALUES (?, ?, ?)", (number, text, pairs)
                )
                self._limit.check()
            return [number for (number,) in connection.execute(question, (match,))]

    # -- what was found ----------------------------------------------------------------------

    def _row(self, number: int, columns: str) -> list[tuple[Any, ...]]:
        return self._execute(
            f"SELECT {columns} FROM {self._source.table} AS m WHERE m.rowid = ?", (number,)
        ).fetchall()

    def page(self, columns: str, numbers: Sequence[int], rows_max: int) -> Found:
        """One page of these rows, in this order."""
        columns = f"m.{self._source.column}, {columns}"
        rows = (row for number in numbers for row in self._row(number, columns))
        return self._cut(rows, rows_max, True)

    def without_index(self, columns: str, rows_max: int) -> Found:
        source, where = self._source, self._where
        condition, parameters = self._query.contained(f"m.{source.column}")
        rows = self._execute(
            f"SELECT m.{source.column}, {columns} FROM {source.table} AS m"
            f" WHERE {where[0]} AND {condition} ORDER BY m.rowid DESC",
            (*where[1], *parameters),
        )
        with closing(rows):
            return self._cut(rows, rows_max, False)

    def _cut(self, rows: Iterable[tuple[Any, ...]], rows_max: int, fts_used: bool) -> Found:
        page, has_more = take_page(
            rows, rows_max, self._limit.page_bytes_max, lambda row: ROW_BYTES + text_bytes(row[0])
        )
        snippets = []
        for text, *_ in page:
            self._limit.check()
            snippets.append(self._snippets.cut(text))
        return Found([row[1:] for row in page], snippets, fts_used, has_more)


def _is_missing(error: sqlite3.DatabaseError) -> bool:
    """No such table, or no such module."""
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_ERROR", "SQLITE_AUTH")


def _chunks(rows: Iterable[Text]) -> Iterator[list[Text]]:
    """Pieces of limited rows and characters; one row may be longer."""
    chunk: list[Text] = []
    size = 0
    for number, text in rows:
        chunk.append((number, text))
        size += len(text)
        if len(chunk) >= CHUNK_ROWS or size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

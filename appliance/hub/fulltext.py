"""Searches messages with their FTS5 index, or with substring matching where there is none.

The index may lag behind the table; `indexed_until` is its last rowid. Newer rows are searched too,
so a row is found as soon as it is committed:

    newer rows           rows that may match, by a cheap substring check, are indexed in memory, so
                         that the same tokenizer decides
    rows in the index    the newest matches, and the matches in the index of pairs, which finds
                         words inside Chinese, Japanese and Korean text (`cjk.py`)
    both, if few match   ranked by bm25 among themselves; otherwise the newest first

Matches are ranked among themselves and not against all texts: that would read every occurrence of
every word, and the order would change as the index grows.

Everything runs in one read transaction, so no row is missed or found twice while the index grows.
Texts are read one at a time in pieces of limited size, and the limit is checked between them, so
a search stops at its deadline for any texts.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from appliance.hub import cjk
from appliance.hub.search_query import Query
from appliance.hub.snippet import Snippets
from appliance.hub.text import parse_instant
from appliance.kernel.page import ROW_BYTES, take_page, text_bytes
from appliance.kernel.reader import snapshot
from appliance.kernel.readlimit import ReadLimit

RANKED_MAX = 500  # with more matches, ranking means little
RANKED_CHARACTERS_MAX = 1 << 20  # the ranked texts' total length; about 40 ms
CHUNK_ROWS = 500  # rows beyond the index searched at once
CHUNK_CHARACTERS = 1 << 18

INDEX = "messages_fts"  # external content: `messages.content_raw`
INDEXED_UNTIL = "x_fts"  # how far the index reaches
PAIRS = "x_cjk_messages"  # the pair index, which may be missing

Text = tuple[int, str]  # rowid, text
Sql = tuple[str, Sequence[Any]]  # a condition and its parameters


class TextMatches(msgspec.Struct, frozen=True):
    """Return rows, best match first, each with a snippet."""

    rows: list[tuple[Any, ...]]
    snippets: list[str]
    fts_used: bool
    has_more: bool


def find(
    connection: sqlite3.Connection,
    query: Query,
    columns: str,
    where: Sql,
    rows_max: int,
    limit: ReadLimit,
    *,
    ranked: bool = True,
) -> TextMatches:
    """Return at most `rows_max` messages and one page in bytes that also match `where`, which
    refers to the table as `m`: few are ranked if `ranked`, else the newest come first."""
    search = _Search(connection, query, where, limit, ranked)
    with snapshot(connection):
        indexed_until = search.indexed_until()
        if not query.alternatives:
            return TextMatches([], [], indexed_until is not None, False)
        if indexed_until is None:
            return search.without_index(columns, rows_max)
        numbers = search.numbers(indexed_until, max(rows_max, RANKED_MAX) + 1)
        return search.page(columns, numbers, rows_max)


def conditions(
    channel_id: str | None,
    topic_id: str | None,
    sender: str | None,
    after: str | None,
    before: str | None,
) -> tuple[str, list[str]]:
    """Return the condition for messages that are not deleted and match these values; None
    matches any. Raises Invalid for malformed times."""
    where, parameters = ["m.deleted_at IS NULL"], list[str]()
    for condition, value in (
        ("m.channel_id = ?", channel_id),
        ("m.topic_id = ?", topic_id),
        ("m.sender = ?", sender),
        ("m.created_at >= ?", parse_instant("after", after)),
        ("m.created_at < ?", parse_instant("before", before)),
    ):
        if value is not None:
            where.append(condition)
            parameters.append(value)
    return " AND ".join(where), parameters


class _Search:
    """One search in one read transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: Query,
        where: Sql,
        limit: ReadLimit,
        ranked: bool,
    ) -> None:
        self._ranked_max = RANKED_MAX if ranked else 0
        self._execute = connection.execute
        self._query = query
        self._where = where
        self._limit = limit
        self._snippets = Snippets(query.terms, prefix=query.prefix)

    def indexed_until(self) -> int | None:
        """Return the last rowid in the index; None without an index or without FTS5."""
        if not self._is_there(INDEX):
            return None
        try:
            row = self._execute(f"SELECT indexed FROM {INDEXED_UNTIL}").fetchone()
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

    def numbers(self, indexed_until: int, matches_max: int) -> list[int]:
        """Return at most `matches_max` matching rowids: few are ranked, many are newest first."""
        matches = self._above(indexed_until, matches_max)
        if len(matches) < matches_max:
            indexed: set[int] = set()
            for index, match in ((INDEX, self._query.match), (PAIRS, self._query.match_pairs)):
                if self._is_there(index):
                    indexed.update(self._search_in(index, match, indexed_until, matches_max))
            matches += sorted(indexed, reverse=True)[: matches_max - len(matches)]
        if 1 < len(matches) <= self._ranked_max:
            return self._rank(matches) or matches
        return matches

    # -- beyond the index --------------------------------------------------------------------

    def _above(self, indexed_until: int, matches_max: int) -> list[int]:
        """Return the newest rows that match and are not in the index."""
        where = self._where
        maybe, parameters = self._query.maybe("m.content_raw")
        # The cheap check decides for ASCII texts only.
        beyond = "length(m.content_raw) <> length(CAST(m.content_raw AS BLOB))"
        candidates = self._execute(
            f"SELECT m.rowid, m.content_raw FROM messages AS m"
            f" WHERE m.rowid > ? AND {where[0]} AND ({maybe} OR {beyond}) ORDER BY m.rowid DESC",
            (indexed_until, *where[1], *parameters),
        )
        matches: list[int] = []
        with closing(candidates):
            for chunk in _chunks(candidates):
                matches += self._in_memory(chunk, "SELECT rowid FROM t WHERE t MATCH ?")
                if len(matches) >= matches_max:
                    break
        return sorted(matches, reverse=True)[:matches_max]

    # -- in the index ------------------------------------------------------------------------

    def _search_in(self, index: str, match: str, indexed_until: int, matches_max: int) -> list[int]:
        # CROSS JOIN: SQLite must start from the index, not scan the table.
        where = self._where
        rows = self._execute(
            f"SELECT f.rowid FROM {index} AS f CROSS JOIN messages AS m ON m.rowid = f.rowid"
            f" WHERE {index} MATCH ? AND f.rowid <= ? AND {where[0]}"
            " ORDER BY f.rowid DESC LIMIT ?",
            (match, indexed_until, *where[1], matches_max),
        )
        return [number for (number,) in rows]

    # -- an index in memory ------------------------------------------------------------------

    def _rank(self, numbers: list[int]) -> list[int]:
        """Return the best match first, then newest; empty if the texts are too long to rank."""
        texts: list[Text] = []
        left = RANKED_CHARACTERS_MAX
        for number in numbers:
            ((text,),) = self._row(number, "m.content_raw")
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

    # -- results -----------------------------------------------------------------------------

    def _row(self, number: int, columns: str) -> list[tuple[Any, ...]]:
        return self._execute(
            f"SELECT {columns} FROM messages AS m WHERE m.rowid = ?", (number,)
        ).fetchall()

    def page(self, columns: str, numbers: Sequence[int], rows_max: int) -> TextMatches:
        """Return one page with these rows, in this order."""
        columns = f"m.content_raw, {columns}"
        rows = (row for number in numbers for row in self._row(number, columns))
        return self._cut(rows, rows_max, True)

    def without_index(self, columns: str, rows_max: int) -> TextMatches:
        where = self._where
        condition, parameters = self._query.contained("m.content_raw")
        rows = self._execute(
            f"SELECT m.content_raw, {columns} FROM messages AS m"
            f" WHERE {where[0]} AND {condition} ORDER BY m.rowid DESC",
            (*where[1], *parameters),
        )
        with closing(rows):
            return self._cut(rows, rows_max, False)

    def _cut(self, rows: Iterable[tuple[Any, ...]], rows_max: int, fts_used: bool) -> TextMatches:
        page, has_more = take_page(
            rows, rows_max, self._limit.page_bytes_max, lambda row: ROW_BYTES + text_bytes(row[0])
        )
        snippets = []
        for text, *_ in page:
            self._limit.check()
            snippets.append(self._snippets.cut(text))
        return TextMatches([row[1:] for row in page], snippets, fts_used, has_more)


def _is_missing(error: sqlite3.DatabaseError) -> bool:
    """Return whether the table or the FTS5 module is missing."""
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_ERROR", "SQLITE_AUTH")


def _chunks(rows: Iterable[Text]) -> Iterator[list[Text]]:
    """Yield chunks with limited rows and characters; a single row may exceed the limit."""
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

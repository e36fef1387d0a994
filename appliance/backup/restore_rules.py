"""Applies what a store declares for restores (`migrations/<store>/store.toml`) to its new file.

The store before the restore is attached as `present`, if it can be read.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from appliance.backup.errors import RestoreRefused
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.datadir import suspect_marker
from appliance.kernel.epochs import JUMP
from appliance.kernel.recovery import keep_sequence
from appliance.kernel.store_declaration import (
    RestoreNotice,
    RestoreRules,
    RestoreStep,
    declaration_of,
)

Mode = Literal["ro", "rw"]
NoticeKind = Literal["lost", "valid-again", "sent-again"]
_BUSY_SECONDS = 5.0
_SEQUENCES = {
    "main": "SELECT seq FROM main.sqlite_sequence WHERE name = ?",
    "present": "SELECT seq FROM present.sqlite_sequence WHERE name = ?",
}


class Noticed(msgspec.Struct, frozen=True):
    """Entries of one kind: how many, and the first of them as (id, text for people)."""

    store: str
    kind: NoticeKind
    noun: str
    count: int
    first: tuple[tuple[str, str], ...]


class RestoredStore:
    """The new file of a store beside the one before it."""

    def __init__(self, connection: sqlite3.Connection, store: str, schema: int, there: bool):
        self.connection = connection
        self.store = store
        self.schema = schema
        self.present = there
        self.rules: RestoreRules = declaration_of(store).restore

    def notices(self, limit: int) -> Iterator[Noticed]:
        """Differences between the file before and this one."""
        for notice in self.rules.notices if self.present else ():
            with suppress(sqlite3.OperationalError):  # the older file has no such table
                noticed = self._noticed(notice, limit)
                if noticed.count:
                    yield noticed

    def _noticed(self, notice: RestoreNotice, limit: int) -> Noticed:
        query = notice.sql
        (count,) = self.connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
        rows = self.connection.execute(f"SELECT * FROM ({query}) LIMIT ?", (limit,))
        first = tuple((str(row[0]), str(row[1])) for row in rows)
        return Noticed(self.store, notice.kind, notice.noun, count, first)

    def all_of(self, noticed: Noticed, limit: int) -> Iterator[tuple[str, str]]:
        """The entries of a notice, at most `limit`."""
        for notice in self.rules.notices:
            if (notice.kind, notice.noun) == (noticed.kind, noticed.noun):
                query = notice.sql
                rows = self.connection.execute(f"SELECT * FROM ({query}) LIMIT ?", (limit,))
                for row in rows:
                    yield str(row[0]), str(row[1])

    def apply(self, now_ms: int, highest: int) -> int:
        """Runs the steps, and raises numbers. Returns the highest number that was given out of the
        first raised table; `highest` is a lower limit for it."""
        given = {"now_ms": now_ms, "now": iso(now_ms)}
        steps = (*self.rules.steps, *(self.rules.carried if self.present else self.rules.otherwise))
        before = 0
        self.connection.execute("BEGIN IMMEDIATE")
        self._run(steps, given)
        for index, table in enumerate(self.rules.raised):
            number = max(self._sequence(table), 0 if index else highest)
            before = before or number
            if meta.exists(self.connection, table):
                keep_sequence(self.connection, table, number + JUMP)
            elif number:  # the migration that adds the table begins with this number
                self.connection.execute(meta.SET, (f"sequence:{table}", str(number + JUMP)))
        self.connection.execute("COMMIT")
        return before

    def _run(self, steps: Sequence[RestoreStep], given: Mapping[str, object]) -> None:
        for step in steps:
            if step.since <= self.schema:
                self.connection.execute(step.sql, given if ":" in step.sql else {})

    def _sequence(self, table: str) -> int:
        numbers = [0]
        for schema in ("main", "present") if self.present else ("main",):
            with suppress(sqlite3.OperationalError):
                row = self.connection.execute(_SEQUENCES[schema], (table,)).fetchone()
                numbers.append(row[0] if row else 0)
        return max(numbers)


@contextmanager
def opened(file: Path, present: Path, store: str, mode: Mode) -> Iterator[RestoredStore]:
    """The new file of a store, with the one before attached if it can be read in `mode`."""
    with closing(_connected(file)) as connection:
        schema = int(meta.read(connection, "x_schema") or 0)
        there = is_readable(present, mode)
        if there:
            uri = f"{present.absolute().as_uri()}?mode={mode}"
            connection.execute("ATTACH ? AS present", (uri,))
        yield RestoredStore(connection, store, schema, there)


def is_readable(database: Path, mode: Mode) -> bool:
    """Whether SQLite opens the file and its schema. Rows may still be damaged."""
    if not database.is_file() or suspect_marker(database).exists():
        return False
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:
            return meta.has_tables(connection)
    except sqlite3.Error:
        return False


def check_references(files: Mapping[str, Path], before: Mapping[str, Path]) -> None:
    """Refuses a combination of stores in which one names what another lacks, if the stores before
    had it. Raises RestoreRefused with the reason. Files that can't be read are skipped."""
    for store in files:
        for reference in declaration_of(store).restore.references:
            broken = _missing(files, store, reference.store, reference.sql, reference.named)
            known = _missing(before, store, reference.store, reference.sql, reference.named)
            if broken - known:
                raise RestoreRefused(
                    f"{store} and {reference.store} don't fit: {reference.says}"
                    f" ({', '.join(sorted(broken - known)[:5])})",
                    hint=f"restore both: --store {store} --store {reference.store}",
                )


def _missing(
    files: Mapping[str, Path], store: str, other: str, naming: str, named: str
) -> frozenset[str]:
    return _values(files.get(store), naming) - _values(files.get(other), named)


def _values(file: Path | None, sql: str) -> frozenset[str]:
    if file is None or not file.is_file():
        return frozenset()
    with suppress(sqlite3.Error), closing(_connected(file)) as connection:
        return frozenset(str(row[0]) for row in connection.execute(sql))
    return frozenset()


def _connected(file: Path) -> sqlite3.Connection:
    uri = f"{file.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection

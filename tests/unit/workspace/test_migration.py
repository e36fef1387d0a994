"""Migration files: names, numbers, promises, and where their statements end."""

import re
import sqlite3
from contextlib import closing

import pytest

from appliance.workspace.datadir import STORES
from appliance.workspace.migration import load, read, statements

HEADER = "-- opens-with: 1\n"
# These end the transaction around a step, or can't be rolled back with it.
FORBIDDEN = {
    "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "ATTACH", "DETACH",
    "VACUUM",
}  # fmt: skip


def test_line_endings_do_not_change_the_hash() -> None:
    text = HEADER + "CREATE TABLE a (b);\n"
    unix, windows = read("0001_a.sql", text), read("0001_a.sql", text.replace("\n", "\r\n"))
    assert unix.sha256 == windows.sha256
    assert unix.sha256 != read("0001_a.sql", text + " ").sha256


@pytest.mark.parametrize("store", STORES)
def test_migrations_are_numbered_without_gaps(store: str) -> None:
    numbers = [migration.number for migration in load(store) if not migration.optional]
    assert numbers == list(range(1, len(numbers) + 1))


def test_statements_end_where_sqlite_sees_their_end() -> None:
    sql = """-- a comment; with a semicolon
CREATE TABLE t (a TEXT DEFAULT ';', b); /* ; */
CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET a = ';'; SELECT 1; END;
-- at the end; nothing
"""
    cut = list(statements(read("0001_a.sql", HEADER + sql)))
    assert len(cut) == 2
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in cut:
            connection.execute(statement)


@pytest.mark.parametrize("store", STORES)
def test_no_statement_ends_the_transaction_of_its_step(store: str) -> None:
    texts = [text for migration in load(store) for text in statements(migration)]
    words = [re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split() for text in texts]
    assert words
    assert not FORBIDDEN & {word.upper() for word, *_ in words}

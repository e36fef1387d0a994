"""Stateless reads: every page once, nothing written, nothing misread."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.sdk.database import QueryTooLong, SchemaUnknown
from appliance.sdk.reader import NoSuchChannel, WorkspaceReader
from tests.support.forks import exit_code_of
from tests.support.workspaces import Filled


@pytest.fixture(params=[False, True], ids=["ours", "foreign"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Filled:
    return Filled(tmp_path, foreign=request.param, messages=25)


def _reader(filled: Filled) -> WorkspaceReader:
    return WorkspaceReader(filled.datadir.database("hub"))


@pytest.mark.parametrize("limit", [1, 7, 25, 26])
def test_paging_backwards_gives_every_message_once(filled: Filled, limit: int) -> None:
    seen: list[str] = []
    with _reader(filled) as reader:
        page = reader.messages(filled.topic_id, limit)
        while page:
            seen += [row["id"] for row in page]
            page = reader.messages(filled.topic_id, limit, before_id=seen[-1])
    assert seen == filled.message_ids[::-1]


def test_page_since_a_time_begins_with_its_first_message(filled: Filled) -> None:
    with _reader(filled) as reader:
        rows = reader.messages(filled.topic_id)[::-1]
        since = rows[10]["created_at"]
        first = next(index for index, row in enumerate(rows) if row["created_at"] >= since)
        assert reader.messages(filled.topic_id, since=since) == rows[first:]
        assert reader.messages(filled.topic_id, 3, since="2000-01-01") == rows[:3]
        assert reader.messages(filled.topic_id, since="2100-01-01") == []


def test_sql_in_a_name_is_only_text(filled: Filled) -> None:
    with _reader(filled) as reader, pytest.raises(NoSuchChannel):
        reader.channel("'; DROP TABLE channels; --")
    with _reader(filled) as reader:
        assert len(reader.channels()) == 1


def test_reading_changes_no_byte_of_the_database(filled: Filled) -> None:
    before = filled.datadir.database("hub").read_bytes()
    with _reader(filled) as reader:
        reader.messages(filled.topic_id)
        reader.counts()
    assert filled.datadir.database("hub").read_bytes() == before


def test_unknown_schema_is_refused_with_both_numbers(filled: Filled) -> None:
    with filled.connect() as connection:
        connection.execute("UPDATE meta SET value = '7' WHERE key = 'schema_version'")
    connection.close()
    with pytest.raises(SchemaUnknown, match="version 7; this program knows 1"):
        _reader(filled)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
def test_database_in_a_read_only_directory_is_readable(tmp_path: Path) -> None:
    """Another user's read-only workspace: no -shm file can be made beside the database."""
    filled = Filled(tmp_path / "w", messages=3)
    assert not filled.datadir.database("hub").with_name("db.sqlite3-wal").exists()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    filled.datadir.dir.chmod(0o555)
    filled.datadir.database("hub").chmod(0o444)

    def read() -> None:
        os.setuid(65534)
        with _reader(filled) as reader:
            assert len(reader.messages(filled.topic_id)) == 3

    assert exit_code_of(read) == 0


class _FastClock:
    """A clock on which every look takes a minute."""

    def __init__(self) -> None:
        self._now = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self._now += 60.0
        return self._now


def test_query_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    filled = Filled(tmp_path, messages=20_000)
    with WorkspaceReader(filled.datadir.database("hub"), _FastClock()) as reader:
        reader._order = "content_raw"  # no index helps
        with pytest.raises(QueryTooLong):
            reader.messages(filled.topic_id)


def test_messages_include_a_recorded_principal(filled: Filled) -> None:
    """A workspace of another program has no table for it, and opens all the same."""
    first = filled.message_ids[0]
    with closing(sqlite3.connect(filled.datadir.database("hub"))) as connection, connection:
        table = "SELECT 1 FROM sqlite_schema WHERE name = 'x_message_principals'"
        recorded = connection.execute(table).fetchone() is not None
        if recorded:
            connection.execute("INSERT INTO x_message_principals VALUES (?, 'ci')", (first,))
    with _reader(filled) as reader:
        principals = {row["id"]: row["principal"] for row in reader.messages(filled.topic_id)}
    assert principals.pop(first) == ("ci" if recorded else None)
    assert set(principals.values()) <= {None}

"""Stateless reads: every page once, nothing written, nothing misread."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.sdk.reader import (
    BadLimit,
    DatabaseUnreadable,
    NoSuchChannel,
    NoSuchMessage,
    NoSuchTopic,
    QueryTooLong,
    SchemaUnknown,
    UnknownCursor,
    WorkspaceReader,
)
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


@pytest.mark.parametrize("limit", [1, 7, 25])
def test_paging_forwards_gives_every_message_once(filled: Filled, limit: int) -> None:
    seen = filled.message_ids[:1]
    with _reader(filled) as reader:
        while page := reader.messages(filled.topic_id, limit, after_id=seen[-1]):
            seen += [row["id"] for row in page]
    assert seen == filled.message_ids


def test_page_between_two_messages_contains_those_between_them(filled: Filled) -> None:
    first, last = filled.message_ids[3], filled.message_ids[7]
    with _reader(filled) as reader:
        rows = reader.messages(filled.topic_id, 50, before_id=last, after_id=first)
    assert [row["id"] for row in rows] == filled.message_ids[4:7]


def test_message_stored_between_two_pages_is_neither_skipped_nor_repeated(
    filled: Filled,
) -> None:
    with _reader(filled) as reader:
        first = reader.messages(filled.topic_id, 10)
    with filled.connect() as connection:
        filled.add_message(connection, "late")
    connection.close()
    with _reader(filled) as reader:
        older = reader.messages(filled.topic_id, 50, before_id=first[-1]["id"])
        newer = reader.messages(filled.topic_id, 50, after_id=first[0]["id"])
    assert len(first) + len(older) == 25
    assert [row["content_raw"] for row in newer] == ["late"]


def test_unknown_names_raise_not_found(filled: Filled) -> None:
    with _reader(filled) as reader:
        with pytest.raises(NoSuchTopic):
            reader.messages("nope")
        with pytest.raises(UnknownCursor):
            reader.messages(filled.topic_id, before_id="nope")
        with pytest.raises(NoSuchMessage):
            reader.message("nope")
        with pytest.raises(NoSuchChannel):
            reader.topics("nope")
        with pytest.raises(NoSuchTopic):
            reader.topic_titled("general", "nope")


def test_channel_is_found_by_name_and_by_id(filled: Filled) -> None:
    with _reader(filled) as reader:
        assert reader.channel("general") == reader.channel(filled.channel_id)
        assert reader.topics("general") == reader.topics(filled.channel_id)


def test_limit_is_positive_and_clamped(filled: Filled) -> None:
    with _reader(filled) as reader:
        with pytest.raises(BadLimit):
            reader.messages(filled.topic_id, limit=0)
        assert len(reader.messages(filled.topic_id, limit=10**9)) == 25


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


def test_other_file_than_a_database_is_reported_as_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite3"
    path.write_bytes(b"no database at all, but long enough to be looked at" * 20)
    with pytest.raises(DatabaseUnreadable, match="not a database"):
        WorkspaceReader(path)


def test_database_without_our_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite3"
    sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(DatabaseUnreadable, match="no such table: meta"):
        WorkspaceReader(path)


def test_name_with_url_characters_is_only_a_name(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "a?mode=rwc#b%20c")
    with _reader(filled) as reader:
        assert len(reader.messages(filled.topic_id)) == 5


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

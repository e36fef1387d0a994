"""A workspace made by another implementation of the hub specification opens unchanged."""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from appliance.hub.foreign_schema import id_order
from tests.migrations.store_file import StoreFixture, check_search
from tests.support.workspaces import FOREIGN_DDL

# Printed in the specification, and wrong for an index that keeps no text of its own.
PRINTED_SEARCH = """
CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts USING fts5(
  content_raw,
  content=messages,
  content_rowid=rowid
);

-- Triggers to keep FTS in sync
CREATE TRIGGER IF NOT EXISTS messages_fts_insert AFTER INSERT ON messages
BEGIN
  INSERT INTO messages_fts(rowid, content_raw) VALUES (new.rowid, new.content_raw);
END;

CREATE TRIGGER IF NOT EXISTS messages_fts_update AFTER UPDATE ON messages
BEGIN
  UPDATE messages_fts SET content_raw = new.content_raw WHERE rowid = old.rowid;
END;

CREATE TRIGGER IF NOT EXISTS messages_fts_delete AFTER DELETE ON messages
BEGIN
  DELETE FROM messages_fts WHERE rowid = old.rowid;
END;
"""
TABLES = ("channels", "topics", "messages", "events", "topic_attachments", "enrichments")
NOW = "2026-01-01T00:00:00.000Z"
GOLDEN = 0x9E3779B97F4A7C15F39CC0605CEDC835


def foreign(folder: Path, ids: list[str], search: bool = True) -> StoreFixture:
    """A file as the other program leaves it: the printed schema, its own meta, its own ids."""
    store_file = StoreFixture(folder)
    with closing(sqlite3.connect(store_file.database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(FOREIGN_DDL + (PRINTED_SEARCH if search else ""))
        facts = {"db_id": "theirs", "schema_version": "1", "created_at": NOW, "theme": "dark"}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        connection.execute("INSERT INTO channels VALUES ('c', 'general', NULL, ?)", (NOW,))
        connection.execute("INSERT INTO topics VALUES ('t', 'c', 'one', ?, ?)", (NOW, NOW))
        for number, each in enumerate(ids):
            connection.execute(
                "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
                " VALUES (?, 't', 'c', 'me', ?, ?)",
                (each, f"word{number} said", NOW),
            )
            connection.execute(
                "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, entity_type,"
                " entity_id, data_json)"
                " VALUES (?, 'message.created', 'c', 't', 'message', ?, '{}')",
                (NOW, each),
            )
        connection.commit()
    return store_file


def contents(store_file: StoreFixture) -> dict[str, list[tuple[object, ...]]]:
    return {table: store_file.execute(f"SELECT rowid, * FROM {table}") for table in TABLES}


def random_ids(count: int) -> list[str]:
    return [str(uuid.UUID(int=number * GOLDEN % 2**128)) for number in range(count)]


@pytest.mark.parametrize("search", [True, False])
def test_foreign_file_opens_unchanged(tmp_path: Path, search: bool) -> None:
    store_file = foreign(tmp_path, random_ids(20), search)
    before = contents(store_file)
    facts = dict(store_file.execute("SELECT key, value FROM meta"))
    shape = [row for row in store_file.shape() if "fts" not in str(row[1])]
    state = store_file.migrate()
    assert contents(store_file) == before
    assert dict(store_file.execute("SELECT key, value FROM meta")).items() >= facts.items()
    assert set(shape) < set(store_file.shape())
    assert not state.pending
    assert not state.optional_missing
    assert state.spec_version == 1
    assert b"adopted another program's workspace" in store_file.lines.getvalue()


def test_wrong_search_triggers_are_replaced_and_the_index_is_rebuilt(tmp_path: Path) -> None:
    store_file = foreign(tmp_path, random_ids(20))
    store_file.migrate()
    assert (
        b"search triggers that don't work with this SQLite were removed"
        in store_file.lines.getvalue()
    )
    with closing(sqlite3.connect(store_file.database, isolation_level=None)) as connection:
        check_search(connection)
        connection.execute("UPDATE messages SET content_raw = 'edited'")
        check_search(connection)
        result = "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ?"
        assert connection.execute(result, ("said",)).fetchone() == (0,)
        assert connection.execute(result, ("edited",)).fetchone() == (20,)


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        (random_ids(10), "rowid"),
        ([f"0190{number:04x}-0000-7000-8000-000000000000" for number in range(10)], "id"),
        ([], "id"),
        (["zz"], "rowid"),
    ],
)
def test_order_of_messages_is_decided_at_adoption(
    tmp_path: Path, ids: list[str], order: str
) -> None:
    store_file = foreign(tmp_path, ids)
    store_file.migrate()
    assert store_file.execute("SELECT value FROM meta WHERE key = 'x_id_order'") == [(order,)]


def add_message(store_file: StoreFixture, message_id: str) -> None:
    store_file.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
        " VALUES (?, 't', 'c', 'me', 'later', ?)",
        message_id,
        NOW,
    )


def order_for_readers(store_file: StoreFixture) -> str:
    with closing(sqlite3.connect(store_file.database)) as connection:
        return id_order(connection)


@pytest.mark.parametrize(
    "theirs",
    [
        ["019f0000-0000-7000-8000-000000000000"],  # sorts before ours
        ["msg_zz"],  # sorts after all that we will make
        ["msg_01ARZ3NDEKTSV4RRFFQ69G5FAV", "msg_00ARZ3NDEKTSV4RRFFQ69G5FAV"],
    ],
)
def test_order_is_decided_again_after_another_program_wrote(
    tmp_path: Path, theirs: list[str]
) -> None:
    store_file = foreign(tmp_path, [])
    store_file.migrate()
    for number in range(5):
        add_message(store_file, f"msg_000000000000000000000000{number:02}")
    store_file.migrate()
    store_file.migrate()
    assert order_for_readers(store_file) == "id"
    for message_id in theirs:
        add_message(store_file, message_id)
    store_file.migrate()
    assert order_for_readers(store_file) == "rowid"
    assert b"another program added messages" in store_file.lines.getvalue()
    assert store_file.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'x!_messages!_%' ESCAPE '!'"
    ) == [(2,)]
    add_message(store_file, "msg_7ZZZZZZZZZ0000000000000000")
    store_file.migrate()
    assert order_for_readers(store_file) == "rowid"


def test_paging_by_rowid_has_its_indexes(tmp_path: Path) -> None:
    store_file = foreign(tmp_path, random_ids(5))
    store_file.migrate()
    for column in ("topic", "channel"):
        plan = str(
            store_file.execute(
                f"EXPLAIN QUERY PLAN SELECT * FROM messages INDEXED BY x_messages_{column}"
                f" WHERE {column}_id = 'x' AND rowid > 5 ORDER BY rowid LIMIT 10"
            )
        )
        assert f"({column}_id=? AND rowid>?)" in plan
        assert "TEMP B-TREE" not in plan

"""The full-text index is in step after anything that may happen to a message, and never needed."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.hub.foreign_schema import SEARCH_TRIGGERS
from appliance.workspace import schema
from tests.migrations.store_file import StoreFixture, catch_up, check_search, say_something

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]


@pytest.fixture
def hub(tmp_path: Path) -> StoreFixture:
    store_file = StoreFixture(tmp_path)
    store_file.migrate()
    say_something(store_file, 0)
    return store_file


@pytest.fixture
def connection(hub: StoreFixture) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(hub.database, isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize("seed", range(2))
def test_the_index_follows_every_kind_of_change(connection: sqlite3.Connection, seed: int) -> None:
    rng = random.Random(seed)
    now = "2026-01-01T00:00:00.000Z"
    connection.execute("INSERT INTO topics VALUES ('t_2', 'ch_1', 'two', ?, ?)", (now, now))
    ids: list[str] = []

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randrange(6)))

    for number in range(400):
        match rng.choice(["insert", "edit", "edit", "tombstone", "move", "same", "fail"]):
            case "edit" if ids:
                connection.execute(
                    "UPDATE messages SET content_raw = ?, version = version + 1 WHERE id = ?",
                    (text(), rng.choice(ids)),
                )
            case "tombstone" if ids:
                connection.execute(
                    "UPDATE messages SET content_raw = '[deleted]', deleted_at = ? WHERE id = ?",
                    (now, rng.choice(ids)),
                )
            case "move" if ids:
                connection.execute(
                    "UPDATE messages SET topic_id = ?, version = version + 1 WHERE topic_id = ?",
                    (rng.choice(["t_1", "t_2"]), rng.choice(["t_1", "t_2"])),
                )
            case "same" if ids:
                connection.execute(
                    "UPDATE messages SET content_raw = content_raw WHERE id = ?", (rng.choice(ids),)
                )
            case "fail" if ids:
                connection.execute("BEGIN")
                connection.execute("UPDATE messages SET content_raw = ?", (text(),))
                connection.execute("ROLLBACK")
            case _:
                ids.append(f"m{number:06}")
                connection.execute(
                    "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw,"
                    " created_at) VALUES (?, 't_1', 'ch_1', 'me', ?, ?)",
                    (ids[-1], text(), now),
                )
        if number % 20 == 0:
            check_search(connection)
        elif number % 7 == 0:
            catch_up(connection, rounds=1)
    check_search(connection)
    for word in WORDS:
        rows = connection.execute(
            "SELECT m.id FROM messages_fts f JOIN messages m ON m.rowid = f.rowid"
            " WHERE messages_fts MATCH ? ORDER BY m.id",
            (word,),
        ).fetchall()
        meant = connection.execute(
            "SELECT id FROM messages WHERE ' ' || content_raw || ' ' LIKE ? ORDER BY id",
            (f"% {word} %",),
        ).fetchall()
        assert rows == meant


def without_fts5(monkeypatch: pytest.MonkeyPatch) -> None:
    """This SQLite has FTS5; one that has not refuses the table and its use like this."""
    really = schema.open_database

    def connect(database: Path, mode: str) -> sqlite3.Connection:
        connection = really(database, mode)

        def refuse(action: int, first: str | None, *_: object) -> int:
            vtable = action == sqlite3.SQLITE_CREATE_VTABLE
            use = action == sqlite3.SQLITE_READ and first == "messages_fts"
            return sqlite3.SQLITE_DENY if vtable or use else sqlite3.SQLITE_OK

        connection.set_authorizer(refuse)
        return connection

    monkeypatch.setattr(schema, "open_database", connect)


def test_without_fts5_the_hub_opens_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_file = StoreFixture(tmp_path)
    with monkeypatch.context() as patched:
        without_fts5(patched)
        for _ in range(2):
            state = store_file.migrate()
            assert not state.pending
            assert state.optional_missing == ("0001_hub_fts.sql",)
    assert b"optional migration not applied" in store_file.lines.getvalue()
    say_something(store_file, 3)
    assert not store_file.migrate().optional_missing
    assert store_file.execute(
        "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'hello'"
    ) == [(3,)]


@pytest.mark.parametrize("name", SEARCH_TRIGGERS)
def test_lost_trigger_is_detected_and_the_index_is_rebuilt(hub: StoreFixture, name: str) -> None:
    hub.execute(f"DROP TRIGGER {name}")
    say_something(hub, 2)
    assert not hub.migrate().optional_missing
    with closing(sqlite3.connect(hub.database, isolation_level=None)) as connection:
        check_search(connection)

"""The peewee models are what the SQL files make: table by table, column by column."""

import importlib
import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel import model as shared
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.schema import STORES, migrate

ROOT = Path(__file__).parents[2]
MODULES = {
    "hub": ["appliance.hub.model", "appliance.hub.plugins.model", "appliance.hub.webhooks.model"],
    "courier": ["appliance.courier.model"],
    "outbox": ["appliance.outbox.model"],
    "broker": ["appliance.broker.model"],
    "inbox": ["appliance.hooks.model", "appliance.inbox.model"],
}
SHARED = {"meta", "x_migrations", "x_idempotency"}  # tables of the kernel, read with plain SQL
WITHOUT_MODELS = {"auth"}  # `agentlip token` runs without peewee
TYPES = {"INT": "INTEGER", "AUTO": "INTEGER", "TEXT": "TEXT", "BLOB": "BLOB", "DOUBLE": "REAL"}


def tables_of(module):
    results = vars(module).values()
    return [
        table
        for table in results
        if isinstance(table, type)
        and issubclass(table, shared.Table)
        and table.__module__ == module.__name__
        and table is not shared.Table
    ]


def declared(table):
    """(name, type, may be NULL, place in the primary key) of each column."""
    meta = table._meta
    key = [field.column_name for field in meta.get_primary_keys()]
    return {
        (
            field.column_name,
            TYPES[field.field_type],
            field.null,
            key.index(field.column_name) + 1 if field.column_name in key else 0,
        )
        for field in meta.sorted_fields
    }


def stored(connection, table):
    return {
        (name, type_, not required and not key_position, key_position)
        for _, name, type_, required, _, key_position in connection.execute(
            f"PRAGMA table_info({table})"
        )
    }


def difference(connection, models):
    """Differences between a store and its models; {} if they are equal."""
    rows = connection.execute("PRAGMA main.table_list").fetchall()
    # Not those of a search index, and not SQLite's own.
    names = {row[1] for row in rows if row[2] == "table" and not row[1].startswith("sqlite_")}
    known = {table._meta.table_name: table for table in models}
    results = dict.fromkeys((names - SHARED) ^ known.keys(), "in the models or in the store only")
    for name in names & known.keys():
        changed = declared(known[name]) ^ stored(connection, name)
        if changed:
            results[name] = sorted(changed)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stores")


def new_store(folder, store):
    path = folder / store
    if not path.exists():
        migrate(path, store, clock=SystemClock(), backups=folder / "b", log=Log(io.BytesIO()))
    return closing(sqlite3.connect(path))


def models_of(store):
    return [table for name in MODULES[store] for table in tables_of(importlib.import_module(name))]


@pytest.mark.parametrize("store", MODULES)
def test_models_equal_the_migrated_tables(folder, store):
    with new_store(folder, store) as connection:
        assert difference(connection, models_of(store)) == {}


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE added (one TEXT) STRICT",
        "DROP TABLE x_webhooks",
        "ALTER TABLE channels ADD COLUMN added TEXT",
        "ALTER TABLE channels DROP COLUMN description",
        "DROP TABLE channels; CREATE TABLE channels (id TEXT PRIMARY KEY NOT NULL,"
        " name TEXT NOT NULL, description BLOB, created_at TEXT NOT NULL) STRICT",
        "DROP TABLE channels; CREATE TABLE channels (id TEXT PRIMARY KEY NOT NULL,"
        " name TEXT NOT NULL, description TEXT NOT NULL, created_at TEXT NOT NULL) STRICT",
        "DROP TABLE channels; CREATE TABLE channels (id TEXT NOT NULL,"
        " name TEXT PRIMARY KEY NOT NULL, description TEXT, created_at TEXT NOT NULL) STRICT",
        "DROP TABLE x_enrichment_sets; CREATE TABLE x_enrichment_sets (message_id TEXT NOT NULL,"
        " plugin TEXT NOT NULL, version INTEGER NOT NULL, content_hash BLOB NOT NULL,"
        " enrichment_ids TEXT NOT NULL, PRIMARY KEY (plugin, message_id)) STRICT",
    ],
    ids=["table", "no table", "column", "no column", "type", "null", "key", "order of the key"],
)
def test_a_difference_is_found(tmp_path, change):
    with new_store(tmp_path, "hub") as connection:
        connection.executescript(f"PRAGMA foreign_keys = OFF; {change}")
        assert len(difference(connection, models_of("hub"))) == 1


def test_every_model_module_belongs_to_a_store():
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "appliance").rglob("model.py")
    }
    known = {name for names in MODULES.values() for name in names}
    assert files == known | {"appliance.kernel.model"}
    assert MODULES.keys() | WITHOUT_MODELS == set(STORES)

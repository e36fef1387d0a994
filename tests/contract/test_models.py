"""The models and row tuples of all stores are what the migrations make."""

import sqlite3
from contextlib import closing

import pytest

from appliance.workspace.schema import STORES
from ops import write_declared
from ops.size import GENERATED
from ops.write_models import CLASSES, Column, models, read_tables, render, rows
from tests.contract.test_walls import ROOT, tracked

WITHOUT_MODELS = {"auth"}  # `agentlip token` runs without peewee
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT;
CREATE TABLE shelf (number INTEGER PRIMARY KEY, label TEXT) STRICT;
CREATE TABLE book (
  part INTEGER NOT NULL,
  isbn TEXT NOT NULL,
  cover BLOB,
  weight REAL NOT NULL CHECK (weight > 0),
  PRIMARY KEY (isbn, part)
) STRICT;
ALTER TABLE book ADD COLUMN state TEXT NOT NULL DEFAULT 'in' CHECK (state IN ('in', 'out'));
CREATE VIRTUAL TABLE words USING fts5(text);
"""
BOOK = [
    Column("part", "INTEGER", False, 2, ""),
    Column("isbn", "TEXT", False, 1, ""),
    Column("cover", "BLOB", True, 0, ""),
    Column("weight", "REAL", False, 0, ""),
    Column("state", "TEXT", False, 0, "'in', 'out'"),
]


@pytest.fixture
def tables():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return read_tables(connection)


def test_generated_files_are_what_their_writers_make():
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in tracked("*.py")}
    generated = {name: text for name, text in files.items() if text.startswith(GENERATED)}
    assert generated == render() | write_declared.render(), "run: just models settings"


def test_every_store_has_models():
    assert CLASSES.keys() | WITHOUT_MODELS == set(STORES)


def test_no_other_module_has_models():
    files = {str(file.relative_to(ROOT)) for file in tracked("appliance/*/model.py")}
    assert files == {f"appliance/{package}/model.py" for package in (*CLASSES, "kernel")}


def test_columns_have_type_null_key_and_permitted_values(tables):
    shelf = [Column("number", "INTEGER", False, 1, ""), Column("label", "TEXT", True, 0, "")]
    assert tables == {"book": BOOK, "shelf": shelf}


def test_model_has_the_key_in_its_order(tables):
    named = {"Book": ("book", tables["book"]), "Shelf": ("shelf", tables["shelf"])}
    text = models("library", named)
    assert "    number = peewee.IntegerField(primary_key=True)\n" in text
    assert "    cover = peewee.BlobField(null=True)\n    weight = peewee.DoubleField()\n" in text
    assert '        primary_key = peewee.CompositeKey("isbn", "part")\n' in text


def test_row_has_the_columns_in_the_order_of_the_table():
    lines = rows("library", {"Book": ("book", BOOK)}).splitlines()
    assert lines[-5:] == [
        "    part: int",
        "    isbn: str",
        "    cover: bytes | None",
        "    weight: float",
        '    state: Literal["in", "out"]',
    ]

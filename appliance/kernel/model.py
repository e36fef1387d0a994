"""What the tables of all stores share: the dialect in which queries are composed, and the tables
that more than one store has.

Models compose queries; they never run them. `statement(query)` is text, and a Reader runs it on
its own connection. The database below has no file and no connection, so peewee's connections,
locks and state of threads are not in use, and a query that is run through peewee fails. The SQL
files under `migrations` say what the tables are; a test compares the models with them.

To compose takes 50 to 600 microseconds, more than most of these queries take to run. So a
statement is composed once for each of its forms, with named parameters: at import, or by a
function that remembers (`functools.cache`) what it composed for which filters.
"""

from collections.abc import Iterable
from typing import Any

import peewee

dialect = peewee.SqliteDatabase(None, autoconnect=False)


class Table(peewee.Model):
    class Meta:
        database = dialect
        legacy_table_names = False


def statement(query: Any) -> str:
    """The text of a query, to be run with the values of what it calls `given`."""
    sql, values = query.sql()
    if values:
        raise ValueError(f"these would be lost, name them with given(): {values}")
    return str(sql)


def given(name: str) -> peewee.SQL:
    """A value that comes when the statement is run."""
    return peewee.SQL(f":{name}")


def literal(word: str) -> peewee.SQL:
    """A word that stands in the statement: a partial index serves no other value."""
    return peewee.SQL(f"'{word}'")


def fields(table: type[Table], names: Iterable[str]) -> list[Any]:
    return [table._meta.fields[name] for name in names]


class Note(Table):
    key = peewee.TextField(primary_key=True)
    value = peewee.TextField()

    class Meta:
        table_name = "meta"


class Migration(Table):
    number = peewee.IntegerField()
    name = peewee.TextField(primary_key=True)
    sha256 = peewee.TextField()
    applied_ms = peewee.IntegerField()

    class Meta:
        table_name = "x_migrations"


class Answer(Table):
    """What `once.py` keeps."""

    principal = peewee.TextField()
    method = peewee.TextField()
    route = peewee.TextField()
    key = peewee.TextField()
    fingerprint = peewee.TextField()
    status = peewee.IntegerField()
    reply = peewee.BlobField()
    created_ms = peewee.IntegerField()

    class Meta:
        table_name = "x_idempotency"
        primary_key = peewee.CompositeKey("principal", "method", "route", "key")

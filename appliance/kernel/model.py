"""What the tables of all stores share: the dialect in which queries are composed, and the tables
that more than one store has.

Models compose queries; they never run them. A composed query is two values, `query.sql()`, and a
Reader runs them on its own connection: `reader.page(*query.sql(), ...)`. The database below has no
file and no connection, so peewee's connections, locks and state of threads are not in use, and a
query that is run through peewee fails. The SQL files under `migrations` say what the tables are;
a test compares the models with them.
"""

from collections.abc import Iterable

import peewee

dialect = peewee.SqliteDatabase(None, autoconnect=False)


class Table(peewee.Model):
    class Meta:
        database = dialect
        legacy_table_names = False


def columns(names: Iterable[str]) -> peewee.SQL:
    """The columns of a query on one table, rendered once: for rows that are wide."""
    return peewee.SQL(", ".join(names))


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

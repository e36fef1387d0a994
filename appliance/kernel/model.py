"""The SQL dialect in which queries are composed.

Models compose queries but never run them. `statement(query)` returns text, and a Reader runs that
text on its connection. The database below has no file and no connection, so peewee's connections,
locks and thread state are not used, and running a query through peewee fails. The SQL files under
`migrations` define the tables; a test compares the models with them.

Composing a query takes 50 to 600 microseconds, longer than most queries run. So each form of a
statement is composed once, with named parameters: at import, or by a function with
`functools.cache`, by filters.
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
    """Return a query's text. The parameters are the names passed to `given`."""
    sql, values = query.sql()
    if values:
        raise ValueError(f"use given() for these values: {values}")
    return str(sql)


def given(name: str) -> peewee.SQL:
    """Return a parameter whose value is passed when the statement runs."""
    return peewee.SQL(f":{name}")


def literal(word: str) -> peewee.SQL:
    """Return a constant in the statement, as a partial index requires."""
    return peewee.SQL(f"'{word}'")


def fields(table: type[Table], names: Iterable[str]) -> list[Any]:
    return [table._meta.fields[name] for name in names]

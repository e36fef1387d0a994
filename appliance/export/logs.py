"""Lists the exported logs, as `migrations/<store>/store.toml` declares them.

The file columns are in schemas/<kind>-1.json. A column is read from the stored column with the same
name, or with an expression.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from appliance.export import schema
from appliance.kernel.store_declaration import DECLARATIONS, LogDeclaration


def _time(column: str) -> str:
    """Return SQL for milliseconds since 1970 as ISO 8601."""
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


def _time_of_others(column: str) -> str:
    """Return SQL for a time that another program wrote, in UTC; NULL if the text isn't ISO 8601."""
    dated = "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*'"
    return f"CASE WHEN {column} GLOB {dated} THEN strftime('%Y-%m-%dT%H:%M:%fZ', {column}) END"


class ExportedLog(NamedTuple):
    """A log and the place where its rows are stored; the fields are the declaration's fields.

    expressions  the SQL to select for a column, if not the stored column with the same name
    """

    kind: str
    store: str
    table: str
    key: str
    expressions: Mapping[str, str]
    scope: str
    payload: str | None = None
    kept: bool = False

    @property
    def columns(self) -> Sequence[schema.ExportColumn]:
        return schema.columns(self.kind)

    @property
    def stored_columns(self) -> list[schema.ExportColumn]:
        """Return the columns to read: all but the epoch."""
        return [column for column in self.columns if column.name != "epoch"]

    @property
    def stored(self) -> list[str]:
        return [column.name for column in self.stored_columns]

    @property
    def rows_after(self) -> str:
        """Return the statement for the next rows. Parameters: the last number, and the limit."""
        selection = ", ".join(f"{self._column(name)} AS {name}" for name in self.stored)
        return (
            f"SELECT {selection} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT ?"
        )

    @property
    def first_after(self) -> str:
        """Return the statement for the next row's number and time. Parameter: the last number."""
        return (
            f"SELECT {self.key}, {self._column('ts')} FROM {self.table} WHERE {self.key} > ?"
            f" ORDER BY {self.key} LIMIT 1"
        )

    @property
    def newest(self) -> str:
        return f"SELECT max({self.key}) FROM {self.table}"

    def _column(self, name: str) -> str:
        return self.expressions.get(name, name)


def _exported(store: str, log: LogDeclaration) -> ExportedLog:
    expressions = {
        **{name: _time(column) for name, column in log.times.items()},
        **{name: _time_of_others(column) for name, column in log.times_of_others.items()},
        **log.columns,
    }
    return ExportedLog(
        log.kind or store, store, log.table, log.key, expressions, log.scope, log.payload, log.kept
    )


_DECLARED = [_exported(name, store.log) for name, store in DECLARATIONS.items() if store.log]
LOGS = {log.kind: log for log in sorted(_DECLARED, key=lambda log: (not log.kept, log.kind))}
"""The logs that stores declare; logs with kept rows come first."""
EVENTS, INBOX = LOGS["events"], LOGS["inbox"]

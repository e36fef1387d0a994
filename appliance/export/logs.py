"""The logs that are exported: a row for each, with its store, table and columns.

The columns of the files are in schemas/<kind>-1.json. A column is read from the column of the same
name, or with the expression given here.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from appliance.export import schema, wire
from appliance.export.errors import LogUnknown


def _time(column: str) -> str:
    """Milliseconds since 1970 as ISO 8601."""
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


def _time_of_others(column: str) -> str:
    """A time that another program wrote, in UTC; NULL if it isn't ISO 8601."""
    dated = "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*'"
    return f"CASE WHEN {column} GLOB {dated} THEN strftime('%Y-%m-%dT%H:%M:%fZ', {column}) END"


class ExportedLog(NamedTuple):
    """A log and where its rows are.

    kind         its name in paths, manifests and requests
    key          the column of the row's number
    expressions  what is selected for a column, if not the column of the same name
    payload      the column whose length counts for `export.segment_bytes_max`
    scope        what a token needs to read it over HTTP
    kept         its rows are never removed from the store
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
        """The columns that are read: all but the epoch."""
        return [column for column in self.columns if column.name != "epoch"]

    @property
    def stored(self) -> list[str]:
        return [column.name for column in self.stored_columns]

    @property
    def rows_after(self) -> str:
        """The statement for the next rows. Parameters: the last number, and the limit."""
        selection = ", ".join(f"{self._column(name)} AS {name}" for name in self.stored)
        return (
            f"SELECT {selection} FROM {self.table} WHERE {self.key} > ? ORDER BY {self.key} LIMIT ?"
        )

    @property
    def first_after(self) -> str:
        """The statement for number and time of the next row. Parameter: the last number."""
        return (
            f"SELECT {self.key}, {self._column('ts')} FROM {self.table} WHERE {self.key} > ?"
            f" ORDER BY {self.key} LIMIT 1"
        )

    @property
    def count_after(self) -> str:
        return f"SELECT count(*) FROM {self.table} WHERE {self.key} > ?"

    @property
    def newest(self) -> str:
        return f"SELECT max({self.key}) FROM {self.table}"

    @property
    def newest_before(self) -> str:
        return f"SELECT max({self.key}) FROM {self.table} WHERE {self.key} < ?"

    def _column(self, name: str) -> str:
        return self.expressions.get(name, name)


def _of_store(kind: str) -> ExportedLog:
    times = {"ts": "at_ms", "accepted_at": "accepted_ms", "delivered_at": "delivered_ms"}
    expressions = {name: _time(column) for name, column in times.items()}
    return ExportedLog(kind, kind, "log", "event_id", expressions, wire.DELIVERY)


EVENTS = ExportedLog(
    "events", "hub", "events", "event_id", {}, wire.READ, payload="data_json", kept=True
)
INBOX = ExportedLog(
    "inbox",
    "inbox",
    "inbox",
    "number",
    {
        "event_id": "number",
        "ts": _time("received_at"),
        "name": "'message.received'",
        "message_id": "id",
        "sent_at": _time_of_others("created_at"),
    },
    wire.DELIVERY,
)
LOGS = {
    log.kind: log
    for log in (EVENTS, _of_store("broker"), _of_store("outbox"), INBOX, _of_store("courier"))
}


def log_of(kind: str) -> ExportedLog:
    """Raises LogUnknown."""
    try:
        return LOGS[kind]
    except KeyError:
        raise LogUnknown(f"no log {kind[:40]!r}; the logs are {', '.join(LOGS)}") from None

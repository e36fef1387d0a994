"""Starts jobs on log rows: hub events, and dead letters in the outbox and the courier."""

from collections.abc import Callable, Sequence

from appliance.jobs.loops import JobEvent
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store

NEXT = "FROM log WHERE event_id > ? ORDER BY event_id LIMIT ?"
AFTER = {
    "hub": "SELECT e.event_id, e.name, c.name, json_extract(e.data_json, '$.principal')"
           " FROM events AS e"
           " LEFT JOIN channels AS c ON c.id = e.scope_channel_id"
           " WHERE e.event_id > ? ORDER BY e.event_id LIMIT ?",
    "outbox": f"SELECT event_id, name, mesh {NEXT}",
    "courier": f"SELECT event_id, name, stream {NEXT}",
}  # fmt: skip


class LogJobEvents:
    """One store's log, which is polled if the store publishes nothing."""

    def __init__(
        self, store: Store, on_publish: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self.source = self.key = store.name
        self._store = store
        self._on_publish = on_publish

    def newest(self) -> int:
        number: int = self._store.read(_newest, "events" if self.key == "hub" else "log")
        return number

    def after(self, number: int, limit: int) -> Sequence[JobEvent]:
        events: list[JobEvent] = self._store.read(_read, AFTER[self.key], number, limit)
        return events

    def listen(self, wake: Callable[[], None]) -> None:
        if self._on_publish is not None:
            self._on_publish(wake)


def _newest(reader: Reader, table: str) -> int:
    row = reader.row(f"SELECT max(event_id) FROM {table}")
    return row[0] or 0


def _read(reader: Reader, sql: str, number: int, limit: int) -> list[JobEvent]:
    return [JobEvent(*row) for row in reader.rows(sql, (number, limit), limit=limit)]

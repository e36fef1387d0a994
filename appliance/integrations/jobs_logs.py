"""Dead letters, and other rows of the logs of outbox and courier, that start jobs."""

from collections.abc import Callable, Sequence

from appliance.jobs.loops import JobEvent
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store

NEXT = "FROM log WHERE event_id > ? ORDER BY event_id LIMIT ?"
AFTER = {
    "outbox": f"SELECT event_id, name, mesh {NEXT}",
    "courier": f"SELECT event_id, name, stream {NEXT}",
}


class LogJobEvents:
    """The log of the store `outbox` or `courier`."""

    def __init__(self, store: Store) -> None:
        self.source = self.key = store.name
        self._store = store

    def newest(self) -> int:
        number: int = self._store.read(_newest)
        return number

    def after(self, number: int, limit: int) -> Sequence[JobEvent]:
        events: list[JobEvent] = self._store.read(_read, AFTER[self.key], number, limit)
        return events

    def listen(self, wake: Callable[[], None]) -> None:
        """Polled: rows are written by another process."""


def _newest(reader: Reader) -> int:
    row = reader.row("SELECT max(event_id) FROM log")
    return row[0] or 0


def _read(reader: Reader, sql: str, number: int, limit: int) -> list[JobEvent]:
    return [JobEvent(*row) for row in reader.rows(sql, (number, limit), limit=limit)]

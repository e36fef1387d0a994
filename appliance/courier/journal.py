"""What durable streams remember: rows in SQLite, written in groups.

An envelope is a row before its producer hears that it was accepted. What happens to it
later (acked, failed, dead) is written a moment after: a crash in between delivers again
what was acked in the last moment, which is what at-least-once means. Leases are not
written: after a restart nobody holds anything.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from appliance.courier import listings, writes
from appliance.courier.listings import PAGE
from appliance.courier.writes import Change, Entry
from appliance.kernel.reader import Reader, open_connection
from appliance.kernel.store import Store

BLOCK = 1_000

Listing = Callable[[Reader, tuple[Any, Any]], list[Any]]


class Row:
    """A remembered envelope, as it is read at the start."""

    __slots__ = (
        "accepted_ms", "attempts", "body", "due_ms", "error", "expires_ms", "failures", "id",
        "key", "number", "priority", "reason", "stream",
    )  # fmt: skip

    def __init__(self, values: Sequence[Any]) -> None:
        (
            self.number, self.stream, self.id, self.body, self.priority, self.key,
            self.accepted_ms, self.due_ms, self.expires_ms, self.attempts, self.failures,
            self.reason, self.error,
        ) = values  # fmt: skip


class Memory:
    """What the journal knows beside envelopes: `tries` by row number, (ms, holder, outcome,
    error); `acked` as (stream, place, id) in order; `paused` as (stream, until ms or None);
    `latest` as (stream, envelope), the oldest first."""

    def __init__(
        self,
        acked: list[Any],
        tries: dict[int, list[Any]],
        paused: list[Any],
        latest: list[Any],
    ) -> None:
        self.acked = acked
        self.tries = tries
        self.paused = paused
        self.latest = latest


class Journal:
    """Numbers its rows itself, upwards for ever. Numbers are reserved by the BLOCK, so that few
    inserts write the sequence beside their row."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told = 0  # the newest row that somebody was told of
        self._newest: int = store.read(_newest)
        self._reserved = self._newest

    def append(self, entries: Sequence[Entry], is_inbox: bool) -> list[int]:
        """Store them; their row numbers, once they are on disk."""
        first = self._newest + 1
        self._newest += len(entries)
        reserve = 0
        if self._newest > self._reserved:
            reserve = self._reserved = self._newest + BLOCK
        rows = self._store.write(writes.append, entries, is_inbox, first, reserve)
        self._told = max(self._told, rows[-1])
        return rows

    def apply(self, changes: Sequence[Change]) -> int:
        """What became of envelopes, in the order it happened."""
        return self._store.write(writes.apply, changes)

    def rows(self) -> list[Row]:
        """Envelopes that nobody was told of yet, in the order they were accepted: all of them
        at the start; after the writer's death those that it had stored at last."""
        found: list[Row] = []
        while True:
            page = self._store.read(_page, self._told)
            found += [Row(values) for values in page]
            if page:
                self._told = found[-1].number
            if len(page) < PAGE:
                return found

    def memory(self, since_ms: int) -> Memory:
        """The rest of what is remembered; forgets what lies before `since_ms`."""
        self._store.write(writes.prune, since_ms)
        tries: dict[int, list[Any]] = {}
        for number, _, *values in self._all(listings.tries, (0, -1)):
            tries.setdefault(number, []).append(tuple(values))
        acked = [row[:1] + row[2:] for row in self._all(listings.acked, ("", -1))]
        acked.sort(key=lambda row: row[1])
        paused = [(stream, until_ms) for stream, _, until_ms in self._all(listings.paused, ("", 0))]
        latest = sorted(self._all(listings.latest, ("", 0)), key=lambda row: row[3])
        return Memory(acked, tries, paused, [(stream, body) for stream, _, body, _ in latest])

    def _all(self, listing: Listing, after: tuple[Any, Any]) -> list[Any]:
        """Every row, page by page; its first two columns say where a page begins."""
        found: list[Any] = []
        while True:
            page = self._store.read(listing, after)
            found += page
            if len(page) < PAGE:
                return found
            after = page[-1][0], page[-1][1]


def folded(changes: Sequence[Change]) -> list[Change]:
    """The same outcome in fewer: without what later changes of an envelope make void. So
    what waits for a full disk is bounded by the envelopes, however often they fail."""
    kept: list[Change] = []
    settled: set[Any] = set()
    tries: dict[int, int] = {}
    for change in reversed(changes):
        what, key = change[0], change[1]
        if what in ("acked", "gone"):
            settled.add(key)
        elif what == "attempt":
            if key in settled:
                continue
            settled.add(key)
        elif what == "tried":
            tries[key] = tries.get(key, 0) + 1
            if tries[key] > change[2]:
                continue
        kept.append(change)
    kept.reverse()
    return kept


def _newest(reader: Reader) -> int:
    """The highest number that was ever given or reserved."""
    row = reader.row("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")
    return int(row[0]) if row else 0


def _page(reader: Reader, after: int) -> list[Any]:
    return reader.rows(
        "SELECT number, stream, id, body, priority, key, accepted_ms, due_ms, expires_ms,"
        " attempts, failures, reason, error FROM journal WHERE number > ? ORDER BY number",
        (after,),
        limit=PAGE,
    )


def remembers(path: Path) -> bool:
    """Does the journal hold envelopes, whatever the settings declare today?"""
    if not path.exists():
        return False
    with closing(open_connection(path, "FULL", query_only=True)) as connection:
        return connection.execute("SELECT 1 FROM journal LIMIT 1").fetchone() is not None

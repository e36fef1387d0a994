"""The journal of durable streams: rows in SQLite, written in batches.

An envelope is stored before its producer gets an answer. Later changes (ack, failure, dead letter)
are written a moment after they happen: a crash in between delivers the envelope again, as
at-least-once delivery allows. Leases are not written: after a restart every leased envelope is
ready.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from appliance.courier import listings, recent_ids, writes
from appliance.courier.change import (
    AttemptFailed,
    EnvelopeAcked,
    EnvelopeAppended,
    EnvelopeGone,
    EnvelopeReturned,
    JournalBatch,
    JournalChange,
)
from appliance.courier.listings import PAGE, Row
from appliance.kernel.errors import StorageFull
from appliance.kernel.reader import Reader, open_connection
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store

BLOCK = 1_000  # row numbers reserved at a time


class Journal:
    """Assigns growing row numbers, reserved in blocks, so that few inserts have to update the
    sequence."""

    def __init__(self, store: Store, steady: SteadyClock) -> None:
        """Take the store. `steady`: the clock for all times in the journal except its log's."""
        self._store = store
        self.steady = steady
        steady.open()
        self._newest: int = store.read(_newest)
        self._reserved = self._newest

    def append(self, entries: Sequence[EnvelopeAppended], is_inbox: bool) -> list[int]:
        """Store envelopes durably. Returns their row numbers."""
        first = self._newest + 1
        self._newest += len(entries)
        reserve = 0
        if self._newest > self._reserved:
            reserve = self._reserved = self._newest + BLOCK
        return self._store.write(writes.append, entries, is_inbox, first, reserve)

    def apply(self, batch: JournalBatch) -> int:
        """Write changes and outcomes. Returns how many."""
        return self._store.write(writes.apply, batch)

    def prune(self) -> None:
        """Delete ids that are not recent any more and pauses that are over; if the disk is full, at
        a later start."""
        with suppress(StorageFull):
            self._store.write(writes.prune, int(recent_ids.SECONDS_MAX * 1000))

    def read_all(self, kind: type[Row]) -> list[Row]:
        """Return a table's rows, ordered by primary key."""
        rows: list[Row] = []
        while True:
            page = self._store.read(listings.page, kind, rows[-1] if rows else None)
            rows += page
            if len(page) < PAGE:
                return rows


def compact(changes: Sequence[JournalChange]) -> list[JournalChange]:
    """Return fewer changes with an equal result: changes that a later one overwrites are left out.
    While the disk is full, this bounds the changes by the number of envelopes."""
    kept: list[JournalChange] = []
    ended: set[int] = set()
    attempts: Counter[int] = Counter()
    for change in reversed(changes):
        if isinstance(change, EnvelopeReturned) and change.row in ended:
            continue
        if isinstance(change, EnvelopeAcked | EnvelopeGone | EnvelopeReturned):
            ended.add(change.row)
        elif isinstance(change, AttemptFailed):
            attempts[change.row] += 1
            if attempts[change.row] > change.limit:
                continue
        kept.append(change)
    kept.reverse()
    return kept


def _newest(reader: Reader) -> int:
    """Return the highest number that was ever assigned or reserved."""
    row = reader.row("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")
    return int(row[0]) if row else 0


def has_envelopes(path: Path) -> bool:
    """Return whether the journal contains envelopes, even if no stream is declared durable now."""
    if not path.exists():
        return False
    with closing(open_connection(path, "FULL", query_only=True)) as connection:
        return connection.execute("SELECT 1 FROM journal LIMIT 1").fetchone() is not None

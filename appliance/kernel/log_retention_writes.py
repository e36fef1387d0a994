"""Defines the writes for the loop in `log_retention.py`. The writer's process imports no loop."""

import msgspec

from appliance.kernel import meta
from appliance.kernel.batch import Tx

KEY = "log"
"""The note's key in the table `meta`."""

ROWS = 2_000  # deleted in one transaction
_DELETE = "DELETE FROM log WHERE event_id <= min(?1, (SELECT min(event_id) FROM log) + ?2 - 1)"


class LogMark(msgspec.Struct, frozen=True, array_like=True):
    """A mark: at steady clock time `age_ms`, `event_id` was the newest row."""

    age_ms: int
    event_id: int


class LogNote(msgspec.Struct, frozen=True):
    """Marks, the oldest first."""

    marks: tuple[LogMark, ...] = ()


def write_note(tx: Tx, note: LogNote) -> None:
    tx.execute(meta.SET, (KEY, msgspec.json.encode(note).decode()))


def delete(tx: Tx, until: int) -> int:
    """Delete the first ROWS rows up to the number `until`; return how many."""
    return tx.execute(_DELETE, (until, ROWS)).rowcount

"""Keeps a workspace's epochs: a list in `.agentlip/epochs.json` that only grows.

An epoch is a random id in the table `meta` in the store that keeps the record. A restore of events
begins a new epoch, and so does `--accept-loss` for the newest events. Event ids continue JUMP above
the highest id that was ever given out, so an id means the same event in all epochs. The file is
outside the stores, because a restore replaces stores.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from appliance.kernel.ownership import read_regular
from appliance.shared.segment_chain import JUMP
from appliance.workspace.datadir import DataDir

FILE = "epochs.json"
KEY = "epoch"
_BYTES_MAX = 16 * 1024 * 1024


class Epoch(msgspec.Struct, frozen=True):
    """An epoch that began with a restore or an accepted loss, or the workspace's first epoch.

    since           beginning; "" for the first
    restored        the backup's name; "" if none was restored
    first_event_id  ids from here on were given out in this epoch
    highest_before  the highest id given out before
    """

    epoch: str
    since: str = ""
    restored: str = ""
    first_event_id: int = 1
    highest_before: int = 0


class EpochList(msgspec.Struct, frozen=True):
    version: int = 1
    epochs: tuple[Epoch, ...] = ()


def read(datadir: DataDir) -> tuple[Epoch, ...]:
    """Return the epochs in order; none if nothing was ever restored or the file can't be read."""
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        text = read_regular(datadir.dir / FILE, _BYTES_MAX)
        return msgspec.json.decode(text, type=EpochList).epochs
    return ()


def first_ids(datadir: DataDir, epoch: str) -> tuple[tuple[int, str], ...]:
    """Return (first event id, epoch) for all epochs up to `epoch`, the current one. Return nothing
    unless `epoch` is the list's newest: otherwise the log was lost, and the ids began again."""
    listed = read(datadir)
    if not listed or listed[-1].epoch != epoch:
        return ()
    return tuple((epoch.first_event_id, epoch.epoch) for epoch in listed)


def ids_between(after: int, until: int, firsts: Iterable[tuple[int, str]]) -> int:
    """Return how many event ids lie in (after, until], without the jumps at which epochs begin.
    `firsts` comes from `first_ids`."""
    jumps = sum(1 for first, _ in firsts if first > JUMP and after < first - 1 <= until)
    return max(0, until - after - jumps * JUMP)


def merge(*lists: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """Return all epochs in several lists, each once, ordered by first id."""
    by_id = {epoch.epoch: epoch for epochs in lists for epoch in epochs}
    return tuple(sorted(by_id.values(), key=lambda epoch: epoch.first_event_id))


def continued(before: tuple[Epoch, ...], old: str, begun: Epoch) -> str:
    """Return the encoded list in which `begun` follows the epochs `before`, which include `old`."""
    if old not in {epoch.epoch for epoch in before}:
        # The first in the list, or the first after the log was lost and the ids began again.
        before = (Epoch(old),)
    text = msgspec.json.encode(EpochList(epochs=merge(before, (begun,))))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def highest(epochs: Iterable[Epoch]) -> int:
    """Return an id that is not below any id given out before the newest epoch began."""
    return max((max(epoch.first_event_id - 1, epoch.highest_before) for epoch in epochs), default=0)

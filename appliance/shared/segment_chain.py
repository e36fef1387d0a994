"""Finds gaps in a segment chain, for export, verify, ingest and audit. Pure.

A log's numbers are consecutive. SQLite takes back a number if the transaction or savepoint is
rolled back, and each log has one writer that inserts unconditionally. Only a restore leaves numbers
out, at least `JUMP` numbers. The logs in SPARSE are the exception: SQLite uses up a number for a
row that `ON CONFLICT DO NOTHING` doesn't insert, so only missing segments are seen in their chains.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

JUMP = 2**32  # a restore continues with numbers that are higher by at least this
_LOST_MAX = JUMP // 2  # the exported events may be newer than the highest known number
SPARSE = frozenset({"bus", "inbox"})  # a repeated message uses up a number
EVENTS = "events"


class ChainLink(Protocol):
    """A manifest's fields that place the segment in the log.

    kind      the log
    previous  the newest event before the first, 0 for a log's first segment; None if unknown
    """

    @property
    def kind(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def previous(self) -> int | None: ...
    @property
    def rows(self) -> int: ...


class Gap(NamedTuple):
    """Events that no segment has, and the reason why that is known. `rows` counts the events
    missing between `first` and `last`: all numbers, or some numbers that one segment spans."""

    first: int
    last: int
    reason: str
    rows: int


def gaps(chain: Iterable[ChainLink], begins_after: int = 0) -> list[Gap]:
    """Return all gaps in one log's segments, sorted by event.

    begins_after  the newest event that retention removed: older ones are not expected
    """
    missing: list[Gap] = []
    last: int | None = None
    for link in sorted(chain, key=lambda link: link.first):
        missing += _before(link, last, begins_after)
        missing += _inside(link)
        last = max(link.last, last or 0)
    return missing


def holes(before: int, numbers: Sequence[int]) -> Iterator[Gap]:
    """Yield the gaps between a store's rows, after row `before`. `numbers` ascend."""
    if not numbers or numbers[-1] - before == len(numbers):
        return
    for former, number in pairwise((before, *numbers)):
        if 1 < number - former < _LOST_MAX:
            yield _gap(former + 1, number - 1, "the log does not have them")


def sentence(gap: Gap, kind: str = EVENTS) -> str:
    """Return a text for people, such as `events 6 to 7 are in no segment`."""
    noun = "events" if kind == EVENTS else f"rows in {kind}"
    if gap.rows == gap.last - gap.first + 1:
        return f"{noun} {gap.first} to {gap.last} {gap.reason}"
    return f"{gap.rows} of the {noun} {gap.first} to {gap.last} {gap.reason}"


def _before(link: ChainLink, last: int | None, begins_after: int) -> Iterator[Gap]:
    """Yield the gap between a segment and the segments before, which reach up to event `last`."""
    former = begins_after if last is None else last
    consecutive = link.kind not in SPARSE and link.first - former < _LOST_MAX
    if consecutive and (last is not None or link.previous != 0):
        end = link.first - 1
    else:
        end = link.previous or 0
    if end > former:
        yield _gap(former + 1, end)


def _inside(link: ChainLink) -> Iterator[Gap]:
    rows = link.last - link.first + 1 - link.rows
    if rows > 0 and link.kind not in SPARSE:
        yield Gap(link.first, link.last, "are missing in their segment", rows)


def _gap(first: int, last: int, reason: str = "are in no segment") -> Gap:
    return Gap(first, last, reason, last - first + 1)

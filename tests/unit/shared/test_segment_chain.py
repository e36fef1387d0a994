"""Every row that a log had and no segment has is in a gap, and no other row is."""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as some

from appliance.shared import segment_chain
from appliance.shared.segment_chain import JUMP, gaps, holes


class Link(NamedTuple):
    first: int
    last: int
    previous: int | None = None
    rows: int = 0
    kind: str = "events"


def link(first: int, last: int, previous: int | None = None, **more) -> Link:
    return Link(first, last, previous, **{"rows": last - first + 1, **more})


def numbers(missing: Iterable[segment_chain.Gap]) -> list[tuple[int, int, int]]:
    return [(gap.first, gap.last, gap.rows) for gap in missing]


AFTER_RESTORE = link(JUMP + 10, JUMP + 12, 7)
CASES = {
    "whole": ([link(1, 5, 0), link(6, 9, 5)], []),
    "no segments": ([], []),
    "first segment missing": ([link(6, 9, 5), link(10, 12, 9)], [(1, 5, 5)]),
    "first segment missing, chain unknown": ([link(6, 9)], [(1, 5, 5)]),
    "middle segment missing": ([link(1, 5, 0), link(8, 9, 7)], [(6, 7, 2)]),
    "middle segment missing, chain unknown": ([link(1, 5), link(8, 9)], [(6, 7, 2)]),
    "rows removed before the export": ([link(1, 5, 0), link(8, 9, 5)], [(6, 7, 2)]),
    "rows missing inside": ([link(1, 9, 0, rows=7)], [(1, 9, 2)]),
    "restore to 7 after 9": ([link(1, 9, 0), AFTER_RESTORE], []),
    "restore, and the end of the former epoch missing": (
        [link(1, 4, 0), AFTER_RESTORE],
        [(5, 7, 3)],
    ),
    "restore, and everything before missing": ([AFTER_RESTORE], [(1, 7, 7)]),
    "repeated events": ([link(1, 100, 0), link(1, 50, 0), link(101, 102, 100)], []),
    "a sparse log skips numbers": (
        [link(3, 9, 0, rows=2, kind="inbox"), link(12, 15, 9, rows=3, kind="inbox")],
        [],
    ),
    "segment of a sparse log missing": (
        [link(3, 9, 0, kind="inbox"), link(15, 15, 12, kind="inbox")],
        [(10, 12, 3)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_named_by_their_numbers(name):
    chain, expected = CASES[name]
    assert numbers(gaps(chain)) == expected
    assert numbers(gaps(reversed(chain))) == expected


def test_rows_removed_by_retention_are_not_expected():
    chain = [link(6, 9, 5), link(10, 12, 9)]
    assert gaps(chain, begins_after=5) == []
    assert gaps(chain, begins_after=7) == []
    assert numbers(gaps(chain, begins_after=3)) == [(4, 5, 2)]


@given(
    some.lists(some.integers(1, 9)),
    some.sets(some.integers(1, 60)),
    some.sets(some.integers(0, 20)),
)
def test_rows_without_a_segment_are_counted_and_within_the_gaps(sizes, lost_rows, lost_segments):
    """Rows that are lost before the export, and segments that are lost after it."""
    ends = list(accumulate(sizes, initial=0))
    chain, held, previous = [], set(), None
    for index, (start, end) in enumerate(pairwise(ends)):
        ids = [number for number in range(start + 1, end + 1) if number not in lost_rows]
        if not ids:
            continue
        before = ids[0] - 1 if previous is None else previous
        previous = ids[-1]
        if index not in lost_segments:
            chain.append(Link(ids[0], ids[-1], before, len(ids)))
            held.update(ids)
    missing = set(range(1, max(held, default=0))) - held
    spans = [set(range(gap.first, gap.last + 1)) for gap in gaps(chain)]
    assert missing <= set().union(*spans)
    assert sum(gap.rows for gap in gaps(chain)) == len(missing)


@given(some.lists(some.sampled_from([1, 1, 1, 2, 5, JUMP + 1]), max_size=40))
def test_holes_of_a_store_are_the_numbers_left_out(steps):
    ids = list(accumulate(steps, initial=7))[1:]
    missing = sum(step - 1 for step in steps if step < JUMP)
    assert sum(gap.rows for gap in holes(7, ids)) == missing
    for gap in holes(7, ids):
        assert not set(range(gap.first, gap.last + 1)) & set(ids)

"""Which segments a job has taken, from a memory that does not grow with their number."""

import json
from pathlib import Path
from random import Random

import pytest

from spark.segments import SegmentFacts, SegmentFile
from spark.taken import TakenSegments

A_YEAR = 100_000  # segments of five minutes


def segment(first, last, rows=None, epoch="e", replaces=()):
    stem = f"segment-{first:020d}-{last:020d}"
    rows = last - first + 1 if rows is None else rows
    return SegmentFile(
        Path(f"{stem}.parquet"), stem, epoch, first, last, None, rows, "parquet", 1, "",
        tuple(each.stem for each in replaces),
    )  # fmt: skip


def after(checkpoint, *some, exported=None):
    taken = TakenSegments(json.loads(json.dumps(checkpoint)))
    taken.add(some, {})
    return taken.remember(some if exported is None else exported)


def test_memory_of_a_hundred_thousand_runs_does_not_grow():
    year = [segment(7 * number + 1, 7 * number + 7) for number in range(A_YEAR)]
    checkpoint, written = {}, 0
    for each in year:
        checkpoint = after(checkpoint, each)
        written += len(json.dumps(checkpoint))
    assert checkpoint["ranges"] == {"e": [[1, 7 * A_YEAR]]}
    assert written < 80 * A_YEAR  # with all names it was 50 bytes times half of their square
    taken = TakenSegments(checkpoint)
    assert all(each in taken for each in year)
    assert segment(7 * A_YEAR, 7 * A_YEAR + 1) not in taken


def test_segments_in_any_order_with_missing_ones_are_remembered_exactly():
    random = Random(1)
    year = [
        segment(3 * number + 1, 3 * number + 3, epoch=epoch)
        for epoch in ("e", "f")
        for number in range(A_YEAR // 2)
    ]
    random.shuffle(year)
    lacking, taken = year[:500], TakenSegments({})
    for start in range(500, len(year), 1000):
        taken.add(year[start : start + 1000], {})
    again = TakenSegments(json.loads(json.dumps(taken.remember([]))))
    assert [each for each in lacking if each in again] == []
    assert all(each in again for each in year[500:])


def test_segment_that_lacks_ids_leaves_room_for_them():
    lacks, repeats = segment(1, 10, rows=9), segment(21, 30)
    taken = TakenSegments({})
    taken.add([lacks, repeats], {repeats.name: SegmentFacts((), 8)})
    checkpoint = taken.remember([lacks, repeats])
    assert (checkpoint["ranges"], checkpoint["lacking"]) == ({}, {lacks.name: 9, repeats.name: 8})
    assert lacks in TakenSegments(checkpoint)
    assert segment(4, 6) not in TakenSegments(checkpoint)
    assert after(checkpoint, segment(11, 20))["lacking"] == {}


def test_overlapping_segments_are_compared_once():
    exported = [segment(1, 5), segment(4, 8), segment(9, 10), segment(4, 8, epoch="f")]
    checkpoint = after({}, *exported)
    assert checkpoint["compared"] == [each.name for each in exported[:2]]
    taken = TakenSegments(checkpoint)
    assert taken.has_compared(exported)
    assert not taken.has_compared([*exported, segment(10, 12)])
    assert taken.has_compared(exported[1:])


def test_segment_that_replaces_taken_ones_is_taken_also_across_a_hole():
    first, second, between = segment(1, 5), segment(8, 10), segment(6, 7)
    taken = TakenSegments(after({}, first, second))
    assert segment(1, 10, replaces=(first, second)) in taken
    assert segment(1, 10, replaces=(first, between, second)) not in taken
    assert between not in taken


@pytest.mark.parametrize("stem", ["", "segment-1-2", "../x", "segment-" + "9" * 20 + "-x"])
def test_malformed_name_of_a_replaced_segment_is_not_taken(stem):
    taken = TakenSegments(after({}, segment(1, 5)))
    assert segment(1, 9)._replace(replaces=(stem,)) not in taken

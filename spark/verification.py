"""Verifies segments where their bytes are read: on executors, unless they are few."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from spark import segments
from spark.errors import JobError
from spark.request import JobRequest
from spark.segments import SegmentFacts, SegmentFile

DRIVER_BYTES_MAX = 32 * 1024 * 1024  # fewer take less time than a start of Python on executors
RESULT = "number bigint, result binary"


def verify(
    ask: JobRequest, some: Sequence[SegmentFile], bad: dict[Any, JobError] | None = None
) -> dict[str, SegmentFacts]:
    """The facts of segments with added columns or repeated ids, by name. Raises the error of the
    first damaged one; with `bad`, errors are put there by the path of the manifest."""
    facts: dict[str, SegmentFacts] = {}
    for number, result in _results(ask, some):
        if isinstance(result, SegmentFacts):
            facts[some[number].name] = result
        elif bad is None:
            raise result
        else:
            bad[some[number].manifest] = result
    return facts


def count_once(some: Iterable[SegmentFile], ids: Mapping[str, int]) -> list[SegmentFile]:
    """The segments with the numbers of their different ids, from which gaps follow."""
    return [segment._replace(rows=ids.get(segment.name, segment.rows)) for segment in some]


def _results(
    ask: JobRequest, some: Sequence[SegmentFile]
) -> Iterator[tuple[int, SegmentFacts | JobError]]:
    """What is not as usual, by the index of its segment, in their order."""
    if sum(segment.bytes for segment in some) <= DRIVER_BYTES_MAX:
        yield from _unusual(enumerate(some))
        return
    numbers = ask.spark.range(0, len(some), 1, len(some))
    rows = numbers.mapInArrow(partial(_verify_batches, some=list(some)), RESULT).collect()
    for number, result in sorted(map(tuple, rows)):
        yield number, pickle.loads(result)


def _verify_batches(batches: Iterator[Any], some: list[SegmentFile]) -> Iterator[Any]:
    """On an executor: a row for each segment that is not as usual."""
    arrow = import_module("pyarrow")
    columns = arrow.schema([("number", arrow.int64()), ("result", arrow.binary())])
    for batch in batches:
        mine = ((number, some[number]) for number in batch.column(0).to_pylist())
        rows = [{"number": n, "result": pickle.dumps(result)} for n, result in _unusual(mine)]
        yield arrow.RecordBatch.from_pylist(rows, columns)


def _unusual(mine: Any) -> Iterator[tuple[int, SegmentFacts | JobError]]:
    for number, segment in mine:
        try:
            facts = segments.verify(segment)
        except JobError as error:
            yield number, error
        else:
            if facts.added or facts.ids != segment.rows:
                yield number, facts

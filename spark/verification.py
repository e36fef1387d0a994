"""Verifies segments where their bytes are read: on a cluster's executors, unless there are few
segments. Bad segments end a job, or are skipped and remembered."""

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from spark import segments
from spark.errors import JobError
from spark.locations import Location
from spark.request import JobRequest
from spark.results import NAMED_MAX, WARN, CheckResult
from spark.segments import EVENTS, SegmentFacts, SegmentFile
from spark.tables import Dataset

QUARANTINE = "quarantine-segments"  # the argument of jobs that may skip segments
DRIVER_BYTES_MAX = 32 * 1024 * 1024  # fewer take less time than a start of Python on executors
RESULT = "number bigint, result binary"


class Export(NamedTuple):
    """A log's live segments, and the errors of skipped segments, by manifest."""

    segments: list[SegmentFile]
    bad: dict[Location, JobError]


def read_export(request: JobRequest, checkpoint: Mapping[str, Any], log: str = EVENTS) -> Export:
    """Return a log's segments below the source. With --quarantine-segments, a segment that the
    checkpoint's run skipped stays skipped until its files change."""
    if not request.options.get(QUARANTINE):
        return Export(segments.manifests(request.source, log), {})
    bad: dict[Location, JobError] = {}
    live = segments.manifests(request.source, log, bad=bad)
    former = checkpoint.get("skipped", {})
    for manifest in (segment.manifest for segment in live):
        known = former.get(str(manifest.relative_to(request.source)))
        if known and known[0] == segments.state(manifest):
            bad[manifest] = JobError(known[1])
    return Export(live, bad)


def list_skipped(request: JobRequest, bad: Mapping[Location, JobError]) -> dict[str, Any]:
    """Return what a run stores about skipped segments: the state of their files and the message."""
    return {
        str(manifest.relative_to(request.source)): [segments.state(manifest), error.message]
        for manifest, error in bad.items()
    }


def warnings(dataset: Dataset) -> list[CheckResult]:
    """Return the newest run's failed checks, which hold until the next run publishes."""
    published = dataset.current()
    return (
        [CheckResult(*row) for row in published.checkpoint.get("warnings", ())] if published else []
    )


def verify(
    request: JobRequest, some: Sequence[SegmentFile], bad: dict[Location, JobError] | None = None
) -> dict[str, SegmentFacts]:
    """Return facts about segments with added columns, repeated ids or payloads that are not plain,
    by name. Raises the first damaged segment's error; with --quarantine-segments the error is put
    in `bad`."""
    facts: dict[str, SegmentFacts] = {}
    for number, result in _results(request, some):
        if isinstance(result, SegmentFacts):
            facts[some[number].name] = result
        elif bad is None or not request.options.get(QUARANTINE):
            raise result
        else:
            bad[some[number].manifest] = result
    return facts


def added_columns(some: Iterable[SegmentFile], facts: Mapping[str, SegmentFacts]) -> list[str]:
    """Return a sentence for each segment with columns beyond the schema."""
    return [
        f"{segment.path} also has {', '.join(facts[segment.name].added)}"
        for segment in some
        if segment.name in facts and facts[segment.name].added
    ]


def disagreements(
    request: JobRequest, exported: Iterable[SegmentFile], bad: Mapping[Location, JobError],
    log: str = EVENTS,
) -> CheckResult:  # fmt: skip
    """Return a warning if overlapping segments have rows with equal ids and different contents."""
    shared = [each for each in segments.overlapping(exported) if each.manifest not in bad]
    if not shared:
        return CheckResult(f"{log}.agree", log, WARN, 0, 0)
    from spark import source  # imports Spark, without which plans decide

    rows = source.read(request.spark, shared, log, more_columns=["_metadata.file_name"])
    differ = source.contradictions(rows, source.names_of_files()).persist()
    some = differ.orderBy("event_id").limit(NAMED_MAX).collect()
    note = "; ".join(f"{row['event_id']} differs in {', '.join(row['files'])}" for row in some)
    return CheckResult(f"{log}.agree", log, WARN, differ.count(), -1, note)


def count_once(some: Iterable[SegmentFile], ids: Mapping[str, int]) -> list[SegmentFile]:
    """Return the segments with the number of different ids in each, from which gaps follow."""
    return [segment._replace(rows=ids.get(segment.name, segment.rows)) for segment in some]


def _results(
    request: JobRequest, some: Sequence[SegmentFile]
) -> Iterator[tuple[int, SegmentFacts | JobError]]:
    """Yield unusual results, by segment index, in segment order."""
    if runs_here(request) or sum(segment.bytes for segment in some) <= DRIVER_BYTES_MAX:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for results in pool.map(lambda item: list(_unusual([item])), enumerate(some)):
                yield from results
        return
    numbers = request.spark.range(0, len(some), 1, len(some))
    rows = numbers.mapInArrow(partial(_verify_batches, some=list(some)), RESULT).collect()
    for number, result in sorted(map(tuple, rows)):
        yield number, pickle.loads(result)


def runs_here(request: JobRequest) -> bool:
    """Return whether executors are this process, where threads need no Python start."""
    return str(request.spark.sparkContext.master).startswith("local")


def _verify_batches(batches: Iterator[Any], some: list[SegmentFile]) -> Iterator[Any]:
    """Yield a row for each unusual segment, on an executor."""
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
            if facts.added or facts.ids != segment.rows or not facts.is_plain:
                yield number, facts

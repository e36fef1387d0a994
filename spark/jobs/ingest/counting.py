"""Counts events and finds changed days in the driver, at a fraction of the cost of a query."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet
from pyarrow.lib import ArrowException

from spark import file_checks
from spark.jobs.ingest import schema
from spark.jobs.ingest import transforms as t
from spark.segments import EpochEnd, SegmentFile

ENVELOPE = ("event_id", "epoch", "ts", "name", "entity_id")
BATCH_ROWS = 65_536
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = (  # microseconds; see `transforms.is_time`
    (time.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    for time in (datetime.min, datetime.max)
)
DAY = timedelta(days=1) // timedelta(microseconds=1)  # microseconds


def summarize(segments: Sequence[SegmentFile], ends: Sequence[EpochEnd]) -> dict[str, int] | None:
    """The same as `transforms.summarize`. None if a query has to count, because a segment is not
    Parquet, has discarded events, repeated numbers or a row with an invalid envelope."""
    last: dict[str, int] = {}
    lasts = dict(ends)
    names: Counter[str] = Counter()
    for segment in sorted(segments, key=lambda segment: segment.first):
        follows = segment.first > last.get(segment.epoch, 0)
        if segment.last > lasts.get(segment.epoch, segment.last) or not follows:
            return None
        if segment.format != "parquet" or not _is_added(segment, names):
            return None
        last[segment.epoch] = segment.last
    rows = names.total()
    return {
        "rows": rows,
        "distinct": rows,
        "changes": _sum(names, set(schema.MESSAGES) - {"message.created"}),
        **{kind: _sum(names, some) for kind, some in t.KINDS.items()},
        "unknown_events": rows - _sum(names, schema.EVENT_NAMES),
        "bad_envelopes": 0,
    }


def _sum(names: Counter[str], some: Iterable[str]) -> int:
    return sum(names[name] for name in some)


def _is_added(segment: SegmentFile, names: Counter[str]) -> bool:
    """Add the names of the events. False if a row is not sound or can't be read."""
    try:
        return _add(segment, names)
    except (ArrowException, OSError, UnicodeDecodeError):
        return False  # the query reports it


def _add(segment: SegmentFile, names: Counter[str]) -> bool:
    file = parquet.ParquetFile(segment.path, read_dictionary=["epoch", "name"])
    before = max(0, segment.first - 1)
    for batch in file.iter_batches(BATCH_ROWS, columns=list(ENVELOPE)):
        columns = [batch.column(name) for name in ENVELOPE]
        if any(column.null_count for column in columns):
            return False
        ids, epoch, ts, name, _ = columns
        numbers = np.append(before, ids.to_numpy())
        times = ts.to_numpy(zero_copy_only=False).view("int64")
        sound = (
            (numbers[:-1] < numbers[1:]).all()
            and numbers[-1] <= segment.last
            and epoch.unique().to_pylist() == [segment.epoch]
            and ((times >= FIRST) & (times <= LAST)).all()
        )
        if not sound:
            return False
        before = numbers[-1]
        for counted in name.value_counts().to_pylist():
            names[counted["values"]] += counted["counts"]
    return not names[""]


def find_changed_days(files: Iterable[Path], newest: Mapping[str, int]) -> dict[str, int] | None:
    """The days on which a message changed, with the time of the newest change in microseconds.

    files   files of messages
    newest  the last event of each epoch in the former version; older rows are copies

    None if a query has to find them: see `file_checks.run`.
    """
    changed: dict[str, int] = {}
    try:
        for batch in file_checks.batches(files, ("epoch", "event_id", "valid_from")):
            times = np.sort(_times_of_new(batch, newest))[::-1]
            days, firsts = np.unique(times // DAY, return_index=True)
            for day, first in zip(days.astype("datetime64[D]"), firsts, strict=True):
                changed[str(day)] = max(int(times[first]), changed.get(str(day), FIRST))
    except (file_checks.NotCountable, *file_checks.UNREADABLE):
        return None
    return changed


def _times_of_new(batch: Any, newest: Mapping[str, int]) -> np.ndarray:
    ids, changes = batch.column("event_id"), batch.column("valid_from")
    if ids.null_count or changes.null_count:
        raise file_checks.NotCountable
    new = np.zeros(batch.num_rows, dtype=bool)
    for epoch, mine in file_checks.by_text(batch.column("epoch")):
        new |= mine & (ids.to_numpy() > newest.get(epoch, 0))
    times: np.ndarray = changes.to_numpy(zero_copy_only=False).view("int64")[new]
    return times

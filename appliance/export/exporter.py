"""Exports the log: continues after the newest segment, fills a new one, closes and publishes it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import segment, table_writer
from appliance.export.errors import OtherHistory
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import Piece, Run, SegmentLimits
from appliance.export.settings import ExportSettings, Format
from appliance.export.source import Batch, StoredLog
from appliance.export.table_writer import TableFile
from appliance.export.wire import SCHEMA_VERSION, SegmentManifest
from appliance.kernel.clock import Clock, iso
from appliance.shared import segment_chain
from appliance.shared.segment_chain import JUMP, SPARSE, Gap

ProgressCallback = Callable[[str], None]
BYTES_MAX = 256 << 20  # a segment's payload, which limits the memory for jobs
GAPS_MAX = 100


class MissingRows(msgspec.Struct, frozen=True):
    """Rows `first` to `last` of a log, inclusive."""

    first: int
    last: int


class ExportRound(msgspec.Struct):
    """One round's result for one log.

    waiting  events in a segment that is not due yet
    missing  events that the store lost before the export
    gaps     the missing events' numbers: the first GAPS_MAX gaps
    """

    log: str
    segments: int = 0
    rows: int = 0
    bytes: int = 0
    last_event_id: int = 0
    waiting: int = 0
    missing: int = 0
    gaps: list[MissingRows] = []


class Exporter:
    """Writes the events that no segment has yet. The caller must have locked the directory.

    A killed exporter leaves at most a file without a manifest, which readers ignore. The next one
    continues after the newest manifest, so every event is in exactly one segment.
    """

    def __init__(
        self,
        log: StoredLog,
        catalogue: SegmentDirectory,
        format_name: Format,
        limits: SegmentLimits,
        clock: Clock,
    ) -> None:
        self._log = log
        self._catalogue = catalogue
        self._format = format_name
        self._limits = limits
        self._clock = clock
        self._columns = log.log.columns
        self._epoch_at = [column.name for column in self._columns].index("epoch")
        self._epoch = ""
        self._newest: SegmentManifest | None = None
        self._open: _Open | None = None
        self._round = ExportRound(log.log.kind)

    def run(
        self, *, due_only: bool = False, progress: ProgressCallback | None = None
    ) -> ExportRound:
        """Export to the end of the log. `due_only` skips a last segment that may grow."""
        self._epoch = self._log.epoch
        start = self._start()
        result = self._round
        result.last_event_id = start
        if due_only and not self._is_anything_due(start):
            result.waiting = self._log.count(start)
            return result
        try:
            with closing(self._log.batches(start)) as batches:
                for previous, batch in batches:
                    for run in batch.runs():
                        self._take(batch, run, previous)
                    if progress is not None:
                        progress(f"{self._log.log.kind}: row {batch.ids[-1]:,}")
            if self._open is not None:
                if due_only and not self._is_due(self._open.first_ms):
                    result.waiting = self._open.rows
                else:
                    self._close()
        finally:
            if self._open is not None:
                self._open.file.abandon()
                self._open = None
        return result

    def _take(self, batch: Batch, run: Run, previous: int) -> None:
        if self._open and not segment.takes(self._open, run.date, batch.ids[run.start]):
            self._close()
        start = run.start
        while start < run.stop:
            if self._open is None:
                before = batch.ids[start - 1] if start else previous
                self._open = self._begin(batch, run._replace(start=start), before)
            room = self._limits.rows_max - self._open.rows
            part = run._replace(start=start, stop=min(run.stop, start + room))
            self._open.add(self._with_epoch(batch, part), batch, part)
            if segment.is_full(self._open, self._limits):
                self._close()
            start = part.stop

    def _begin(self, batch: Batch, run: Run, before: int) -> "_Open":
        path = self._catalogue.temporary(run.date)
        file = table_writer.create(path, self._format, self._columns)
        first, kept = batch.ids[run.start], self._log.log.kept
        # Event `first` follows the last exported one unless the store lost some.
        former = self._newest.last_event_id if self._newest else 0 if kept else first - 1
        return _Open(
            run.date, first, former, 0, 0, batch.times_ms[run.start], file=file, path=path,
            previous=self._previous(first, before), consecutive=self._log.log.kind not in SPARSE,
        )  # fmt: skip

    def _close(self) -> None:
        assert self._open is not None
        opened, result = self._open, self._round
        written = opened.file.finish()
        name = segment.stem(opened.first_event_id, opened.last_event_id)
        manifest = SegmentManifest(
            schema_version=SCHEMA_VERSION,
            kind=self._catalogue.kind,
            epoch=self._epoch,
            first_event_id=opened.first_event_id,
            last_event_id=opened.last_event_id,
            previous_event_id=opened.previous,
            rows=written.rows,
            file=f"{name}.{self._format}",
            format=self._format,
            bytes=written.bytes,
            sha256=written.sha256,
            created_at=iso(self._clock.now_ms()),
            date=opened.date,
            workspace_id=self._log.workspace_id,
        )
        self._catalogue.publish(manifest, opened.path)
        self._open = None
        result.segments += 1
        result.rows += manifest.rows
        result.bytes += manifest.bytes
        result.last_event_id = manifest.last_event_id
        result.missing += sum(gap.rows for gap in opened.gaps)
        gaps = opened.gaps[: GAPS_MAX - len(result.gaps)]
        result.gaps += [MissingRows(gap.first, gap.last) for gap in gaps]
        self._newest = manifest

    def _start(self) -> int:
        """Return the newest exported event. Raises OtherHistory for a directory with another
        history."""
        newest = self._newest = segment.newest(self._catalogue.manifests())
        if newest is None:
            return 0
        if newest.workspace_id not in (None, self._log.workspace_id):
            raise OtherHistory("the directory contains another workspace's log")
        self._check_end(newest)
        return newest.last_event_id

    def _check_end(self, newest: SegmentManifest) -> None:
        """Refuse a log with restarted numbers, because rows would be skipped until the numbers
        reach the exported ones. A store may remove the newest rows of a log with limited
        retention."""
        kept = self._log.log.kept
        if kept and newest.epoch != self._epoch:
            return
        end = self._log.newest() if kept else self._log.highest()
        if end < newest.last_event_id:
            raise OtherHistory(
                f"the log {self._catalogue.kind} ends with event {end}, but a segment has event"
                f" {newest.last_event_id}: the database was replaced without the restore command"
            )

    def _previous(self, first: int, before: int) -> int:
        """Return the event before event `first`, given the newest earlier event that the store
        still has.

        In the same epoch, return the last exported event, although the store may have removed the
        row. After a restore, which undoes events, return the event in the store. A kept log that
        does not begin with event 1 has lost the beginning.
        """
        newest, log = self._newest, self._log.log
        if newest is None:
            return before or (first - 1 if log.kept and first < JUMP else 0)
        if newest.epoch == self._epoch:
            return newest.last_event_id
        return before or (0 if log.kept else newest.last_event_id)

    def _is_anything_due(self, start: int) -> bool:
        first_ms = self._log.first_after(start)
        if first_ms is None:
            return False
        return self._is_due(first_ms) or self._log.count(start) >= self._limits.rows_max

    def _is_due(self, first_ms: int) -> bool:
        return segment.is_due(first_ms, self._limits, self._clock.now_ms())

    def _with_epoch(self, batch: Batch, run: Run) -> list[Sequence[Any]]:
        columns = [column[run.start : run.stop] for column in batch.columns]
        columns.insert(self._epoch_at, [self._epoch] * (run.stop - run.start))
        return columns


class _Open(Piece, kw_only=True):
    """The segment in progress, and the file."""

    file: TableFile
    path: Path
    previous: int
    consecutive: bool
    gaps: list[Gap] = []

    def add(self, columns: Sequence[Sequence[Any]], batch: Batch, run: Run) -> None:
        self.file.add(columns)
        ids = batch.ids[run.start : run.stop]
        if self.consecutive:
            self.gaps += segment_chain.holes(self.last_event_id, ids)
        self.last_event_id = ids[-1]
        self.rows += len(ids)
        self.bytes += sum(batch.sizes[run.start : run.stop])


def limits_of(settings: ExportSettings) -> SegmentLimits:
    return SegmentLimits(
        settings.segment_rows_max, BYTES_MAX, int(settings.segment_open_seconds * 1000)
    )

"""The log's way into segments: read on from the newest one, fill a piece, close it, publish it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import schema, segment, table_writer
from appliance.export.manifests import Catalogue
from appliance.export.segment import Limits, Piece, Run
from appliance.export.settings import Format, JobsSettings
from appliance.export.source import Batch, Log
from appliance.export.table_writer import Constant, TableFile
from appliance.export.trouble import OtherHistory
from appliance.export.wire import SCHEMA_VERSION, Manifest
from appliance.kernel.clock import Clock, iso

Tell = Callable[[int], None]
Done = Callable[[Manifest], None]


class Round(msgspec.Struct):
    """What one round did. `waiting`: events left for a later one, in a piece that is not due."""

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    last_event_id: int = 0
    waiting: int = 0


class Exporter:
    """Writes what the log has and the directory has not. The caller holds the directory's lock.

    A killed exporter leaves at most a file that nobody believes in; the next one reads on from
    the newest manifest. So no event is in two segments, and none is in no segment.
    """

    def __init__(
        self, log: Log, catalogue: Catalogue, format_name: Format, limits: Limits, clock: Clock
    ) -> None:
        self._log = log
        self._catalogue = catalogue
        self._format = format_name
        self._limits = limits
        self._clock = clock
        self._columns = schema.events()
        self._epoch_at = [column.name for column in self._columns].index("epoch")
        self._epoch = ""
        self._open: _Open | None = None

    def run(
        self, *, due_only: bool = False, tell: Tell | None = None, done: Done | None = None
    ) -> Round:
        """One round to the end of the log. `due_only`: a last piece that may grow is left."""
        self._epoch = self._log.epoch
        start = self._start()
        result = Round(last_event_id=start)
        if due_only and not self._is_anything_due(start):
            result.waiting = self._log.count(start)
            return result
        try:
            self._read_on(start, result, tell, done)
            if self._open is not None:
                first_ms = self._open.piece.first_ms
                if due_only and not segment.is_due(first_ms, self._limits, self._now()):
                    result.waiting = self._open.piece.rows
                else:
                    self._close(result, done)
        finally:
            if self._open is not None:
                self._open.file.abandon()
                self._open = None
        return result

    def _read_on(self, cursor: int, result: Round, tell: Tell | None, done: Done | None) -> None:
        with closing(self._log.batches(cursor)) as batches:
            for previous, batch in batches:
                for run in batch.runs():
                    self._take(batch, run, previous, result, done)
                if tell is not None:
                    tell(len(batch.ids))

    def _take(
        self, batch: Batch, run: Run, previous: int, result: Round, done: Done | None
    ) -> None:
        opened = self._open
        if opened and not segment.takes(opened.piece, run.date, batch.ids[run.start]):
            self._close(result, done)
        taken = self._open.piece.rows if self._open else 0
        rows_max = self._limits.rows_max
        for part in segment.pieces(run, rows_max - taken, rows_max):
            if self._open is None:
                before = batch.ids[part.start - 1] if part.start else previous
                self._open = self._begin(batch, part, before)
            self._open.add(self._with_epoch(batch, part), batch, part)
            if segment.is_full(self._open.piece, self._limits):
                self._close(result, done)

    def _begin(self, batch: Batch, run: Run, previous: int) -> "_Open":
        path = self._catalogue.temporary(run.date)
        file = table_writer.create(path, self._format, self._columns)
        first = batch.ids[run.start]
        return _Open(
            file, path, previous, Piece(run.date, first, first, 0, 0, batch.first_ms(run.start))
        )

    def _close(self, result: Round, done: Done | None) -> None:
        assert self._open is not None
        opened, piece = self._open, self._open.piece
        written = opened.file.finish()
        name = segment.stem(piece.first_event_id, piece.last_event_id)
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            kind=self._catalogue.kind,
            epoch=self._epoch,
            first_event_id=piece.first_event_id,
            last_event_id=piece.last_event_id,
            previous_event_id=opened.previous,
            rows=written.rows,
            file=f"{name}.{self._format}",
            format=self._format,
            bytes=written.bytes,
            sha256=written.sha256,
            created_at=iso(self._now()),
            date=piece.date,
            workspace_id=self._log.workspace_id,
        )
        self._catalogue.publish(manifest, opened.path)
        self._open = None
        result.segments += 1
        result.rows += manifest.rows
        result.bytes += manifest.bytes
        result.last_event_id = manifest.last_event_id
        if done is not None:
            done(manifest)

    def _start(self) -> int:
        """The newest event that is in a segment; refuses a directory of another history."""
        newest = segment.newest(self._catalogue.manifests())
        if newest is None:
            return 0
        if newest.workspace_id not in (None, self._log.workspace_id):
            raise OtherHistory("that directory holds the log of another workspace")
        end = self._log.newest()
        if newest.epoch == self._epoch and end < newest.last_event_id:
            raise OtherHistory(
                f"the log ends with event {end}, and event {newest.last_event_id} of the same"
                " epoch is in a segment: the database was put back past the restore command"
            )
        return newest.last_event_id

    def _is_anything_due(self, start: int) -> bool:
        first_ms = self._log.first_after(start)
        if first_ms is None:
            return False
        if segment.is_due(first_ms, self._limits, self._now()):
            return True
        return self._log.count(start) >= self._limits.rows_max

    def _with_epoch(self, batch: Batch, run: Run) -> list[Sequence[Any]]:
        columns = list(batch.part(run.start, run.stop))
        columns.insert(self._epoch_at, Constant(self._epoch, run.stop - run.start))
        return columns

    def _now(self) -> int:
        return self._clock.now_ms()


class _Open(msgspec.Struct):
    """The piece that is being filled, and its file."""

    file: TableFile
    path: Path
    previous: int
    piece: Piece

    def add(self, columns: Sequence[Sequence[Any]], batch: Batch, run: Run) -> None:
        self.file.add(columns)
        piece = self.piece
        self.piece = piece._replace(
            last_event_id=batch.ids[run.stop - 1],
            rows=piece.rows + run.stop - run.start,
            bytes=piece.bytes + batch.payload_bytes(run.start, run.stop),
        )


def limits_of(settings: JobsSettings) -> Limits:
    return Limits(
        settings.segment_rows_max,
        settings.segment_bytes_max,
        int(settings.segment_open_seconds * 1000),
    )

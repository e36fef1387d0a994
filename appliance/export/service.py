"""Lists and reads segments and snapshots, and runs reports.

Files are read in native threads.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.export import manifests, metrics, segment, wire
from appliance.export.errors import EmptyRange, ExportError, SegmentMissing, TablesMissing
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.report_wire import ActivityQuery, DeliveryQuery
from appliance.export.wire import SegmentManifest
from appliance.kernel.errors import Invalid
from appliance.kernel.page import take_page
from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner, error_of

REPORTS_MAX = 2  # reports over HTTP at the same time; others get 503
REPORT_SECONDS_MAX = 60.0  # a report over HTTP that takes longer is aborted
REPORT_ROWS_MAX = 1_000  # largest number of rows of a list in a report over HTTP
DOWNLOAD_CHUNK_BYTES = 256 * 1024  # bytes of a download that are read at once
SEGMENTS_PAGE_MAX = 1_000  # largest number of segments in one response
BESIDE_BYTES = 100  # added per row for the rest of the page, which is more than it needs
EXIT_INVALID = 1  # exit code of the command line for invalid arguments
TOO_SLOW = "request a smaller range"
_encode = msgspec.json.Encoder().encode


class FileRange(NamedTuple):
    """Bytes `start` to `stop` of an open segment."""

    descriptor: int
    start: int
    stop: int


class Segments:
    """Segments in `export.export_dir`. Manifests never change, so each is parsed once."""

    def __init__(self, out: Path) -> None:
        self._catalogues = {kind: SegmentDirectory(out, kind) for kind in LOGS}
        self._caches: dict[str, dict[tuple[str, int, int], SegmentManifest]] = {}

    def list_after(self, query: wire.SegmentsQuery) -> wire.SegmentList:
        manifests = in_thread(self._read_all, query.log)
        limit = min(query.limit, SEGMENTS_PAGE_MAX)
        segments, more = segment.page(manifests, query.after, limit)
        # A segment may list thousands of replaced ones, so the page is also limited in bytes.
        page, cut = take_page(map(_segment_row, segments), limit, PAGE_BYTES_MAX, _bytes)
        cursor = page[-1].last_event_id if page else query.after
        return wire.SegmentList(page, cursor, more or cut, in_thread(self._begins_after, query.log))

    def find(self, log: str, name: str) -> SegmentManifest:
        if segment.stem_of(name) is None:
            raise wire.SegmentNotFound
        for entry in in_thread(self._read_all, log):
            if entry.file == name:
                return entry
        raise wire.SegmentNotFound

    def open(self, manifest: SegmentManifest, start: int, stop: int) -> Iterator[bytes]:
        """The bytes in chunks. The file is opened now, so a later removal does not matter."""
        path = self._catalogues[manifest.kind].data(manifest)
        try:
            return FileChunks(in_thread(_open, path, manifest.bytes, start, stop))
        except FileNotFoundError:
            raise wire.SegmentNotFound from None

    def _begins_after(self, log: str) -> int:
        try:
            return self._catalogues[log].begins_after()
        except ExportError as error:
            raise _damage_error(error) from None

    def _read_all(self, log: str) -> list[SegmentManifest]:
        catalogue, former = self._catalogues[log], self._caches.get(log, {})
        entries = {}
        try:
            paths = catalogue.paths()
        except ExportError as error:
            raise _damage_error(error) from None
        for path in paths:
            try:
                with manifests.reading(path.name):
                    stat = path.stat()
                key = (path.name, stat.st_ino, stat.st_mtime_ns)
                entries[key] = former.get(key) or catalogue.read(path)
            except SegmentMissing:
                continue  # removed since the folder was read, because another segment replaces it
            except ExportError as error:
                raise _damage_error(error) from None
        self._caches[log] = entries
        return list(entries.values())


class Snapshots:
    """Snapshots in `export.export_dir`. There are few, so each is read for every request."""

    def __init__(self, out: Path) -> None:
        self._out = out.absolute()

    def newest(self, query: wire.SnapshotsQuery) -> wire.SnapshotList:
        limit = min(query.limit, SEGMENTS_PAGE_MAX)
        snapshots = in_thread(self._read_all)
        keys = sorted(
            ((manifest.as_of_event_id, name) for name, manifest in snapshots.items()), reverse=True
        )
        if query.after is not None:
            event_id, _, name = query.after.partition(":")
            keys = [key for key in keys if key < (int(event_id), name)]
        rows = (_snapshot_row(name, snapshots[name]) for _, name in keys)
        page, more = take_page(rows, limit, PAGE_BYTES_MAX, _bytes)
        last = f"{page[-1].as_of_event_id}:{page[-1].name}" if more else None
        return wire.SnapshotList(page, more, last)

    def find(self, name: str, file: str) -> wire.SnapshotFile:
        """A file from the list of snapshots. Names are never used as paths before this check."""
        manifest = in_thread(self._read_all).get(name)
        for entry in manifest.files.values() if manifest else ():
            if entry.file == file:
                return entry
        raise wire.SnapshotNotFound

    def open(self, name: str, file: wire.SnapshotFile, start: int, stop: int) -> Iterator[bytes]:
        path = self._out / manifests.SNAPSHOT / name / file.file
        try:
            return FileChunks(in_thread(_open, path, file.bytes, start, stop))
        except FileNotFoundError:
            raise wire.SnapshotNotFound from None

    def _read_all(self) -> dict[str, wire.SnapshotManifest]:
        entries = {}
        for path in manifests.snapshots(self._out):
            try:
                entries[path.parent.name] = manifests.read_snapshot(path)
            except SegmentMissing:
                continue  # removed meanwhile, because there is a newer one
            except ExportError as error:
                raise _damage_error(error) from None
        return entries


class Reports:
    """Runs reports with the command line, because they read many files and rows."""

    def __init__(self, child: CommandRunner) -> None:
        self._child = child
        self._running = 0

    def activity(self, query: ActivityQuery) -> bytes:
        """An ActivityReport as JSON, from the output of the command."""
        options = {"from": query.first, "to": query.last, "channel": query.channel}
        return self._run("activity", query.top, options)

    def delivery(self, query: DeliveryQuery) -> bytes:
        """A DeliveryReport as JSON, from the output of the command."""
        options = {"from": query.first, "to": query.last, "log": query.log}
        return self._run("delivery", query.top, options)

    def _run(self, name: str, top: int, options: Mapping[str, str | None]) -> bytes:
        if self._running >= REPORTS_MAX:
            metrics.reports.labels("refused").inc()
            raise wire.ReportUnavailable("too many reports are running", retry_after=2.0)
        arguments = ["report", name, f"--top={min(top, REPORT_ROWS_MAX)}"]
        arguments += [f"--{flag}={value}" for flag, value in options.items() if value is not None]
        self._running += 1
        try:
            done = self._child.run(arguments, REPORT_SECONDS_MAX, too_slow_hint=TOO_SLOW)
        finally:
            self._running -= 1
        if done.code == 0:
            metrics.reports.labels("ok").inc()
            return done.output
        metrics.reports.labels("failed").inc()
        error = error_of(done)
        if error.code in (EmptyRange.code, TablesMissing.code):
            raise wire.NothingInRange(error.error, hint=error.hint)
        if done.code == EXIT_INVALID:
            raise Invalid(error.error, hint=error.hint)
        raise wire.ReportUnavailable(error.error, details={"code": error.code}, hint=error.hint)


class FileChunks:
    """An iterator that the server closes at the end of the response, also after an error."""

    def __init__(self, part: FileRange) -> None:
        self._part: FileRange | None = part

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = self._part
        if part is None or part.start >= part.stop:
            self.close()
            raise StopIteration
        size = min(DOWNLOAD_CHUNK_BYTES, part.stop - part.start)
        data = in_thread(os.pread, part.descriptor, size, part.start)
        self._part = part._replace(start=part.start + len(data))
        if not data:  # the file was truncated: the response ends early
            self.close()
            raise StopIteration
        metrics.sent.inc(len(data))
        return data

    def close(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            os.close(part.descriptor)


def _open(path: Path, size: int, start: int, stop: int) -> FileRange:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise wire.SegmentsDamaged(f"{path.name} cannot be read: {error.strerror}") from None
    if os.fstat(descriptor).st_size != size:
        os.close(descriptor)
        raise wire.SegmentsDamaged(f"{path.name} has another size than its manifest")
    return FileRange(descriptor, start, stop)


def _damage_error(error: ExportError) -> wire.SegmentsDamaged:
    return wire.SegmentsDamaged(error.message, details={"code": error.code})


def _bytes(row: wire.Segment | wire.Snapshot) -> int:
    return len(_encode(row)) + BESIDE_BYTES


def _snapshot_row(name: str, manifest: wire.SnapshotManifest) -> wire.Snapshot:
    return wire.Snapshot(name=name, **msgspec.structs.asdict(manifest))


def _segment_row(manifest: SegmentManifest) -> wire.Segment:
    return wire.Segment(name=manifest.file, **msgspec.structs.asdict(manifest))

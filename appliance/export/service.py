"""Lists and reads segments and snapshots, and runs reports.

Files are read in native threads.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.export import manifests, metrics, segment, wire
from appliance.export.errors import EmptyRange, ExportError, SegmentMissing, TablesMissing
from appliance.export.logs import LOGS
from appliance.export.manifests import SegmentDirectory
from appliance.export.report_wire import ActivityQuery, DeliveryQuery
from appliance.export.wire import SegmentManifest
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid, refuse_scope
from appliance.kernel.page import take_page
from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner, error_of

REPORTS_MAX = 2  # concurrent reports over HTTP; others get 503
REPORT_SECONDS_MAX = 60.0  # a report over HTTP that takes longer is aborted
REPORT_ROWS_MAX = 1_000  # row limit for a list in a report over HTTP
DOWNLOAD_CHUNK_BYTES = 256 * 1024  # bytes per read during a download
SEGMENTS_PAGE_MAX = 1_000  # segment limit for one response
MANIFESTS_MAX = 50_000  # parsed manifests in memory: about 1 kB each
BESIDE_BYTES = 100  # added per row for the page's rest, more than needed
EXIT_INVALID = 1  # the command line's exit code for invalid arguments
TOO_SLOW = "request a smaller range"
_encode = msgspec.json.Encoder().encode


class FileDownload(NamedTuple):
    """A file that a manifest lists; `format` is parquet or jsonl."""

    path: Path
    size: int
    sha256: str
    format: str

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Return the bytes in a range. Raises SegmentsDamaged at once if the file is damaged."""
        with _damage_errors():
            in_thread(manifests.check, self.path, self.size, None)
        return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        with in_thread(lambda: self.path.open("rb")) as file:
            file.seek(start)
            while data := in_thread(file.read, min(DOWNLOAD_CHUNK_BYTES, stop - start)):
                start += len(data)
                metrics.sent.inc(len(data))
                yield data


class Segments:
    """Segments in `export.export_dir`."""

    def __init__(self, out: Path) -> None:
        self._directories = {kind: SegmentDirectory(out, kind) for kind in LOGS}

    def list_after(self, query: wire.SegmentsQuery, principal: Principal) -> wire.SegmentList:
        _check_scope(query.log, principal)
        entries = in_thread(self._read_all, query.log)
        limit = min(query.limit, SEGMENTS_PAGE_MAX)
        segments, more = segment.page(entries, query.after, limit)
        # A segment may list thousands of replaced ones, so the page is also limited in bytes.
        page, cut = take_page(map(_segment_row, segments), limit, PAGE_BYTES_MAX, _bytes)
        cursor = page[-1].last_event_id if page else query.after
        with _damage_errors():
            begin = in_thread(self._directories[query.log].begins_after)
        return wire.SegmentList(page, cursor, more or cut, begin)

    def find(self, name: str, query: wire.SegmentQuery, principal: Principal) -> FileDownload:
        _check_scope(query.log, principal)
        for entry in in_thread(self._read_all, query.log):
            if entry.file == name:
                path = self._directories[query.log].data(entry)
                return FileDownload(path, entry.bytes, entry.sha256, entry.format)
        raise wire.SegmentNotFound

    def _read_all(self, log: str) -> list[SegmentManifest]:
        directory, entries = self._directories[log], []
        with _damage_errors():
            for path in directory.paths():
                with suppress(SegmentMissing):  # removed meanwhile: another one is the replacement
                    with manifests.reading(path.name):
                        changed_ns = path.stat().st_mtime_ns
                    entries.append(_read_manifest(directory, path, changed_ns))
        return entries


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

    def find(self, name: str, file: str, _caller: Principal) -> FileDownload:
        """Return a file from the snapshot list. Names are never used as paths before this check."""
        manifest = in_thread(self._read_all).get(name)
        for entry in manifest.files.values() if manifest else ():
            if manifest and entry.file == file:
                path = self._out / manifests.SNAPSHOT / name / file
                return FileDownload(path, entry.bytes, entry.sha256, manifest.format)
        raise wire.SnapshotNotFound

    def _read_all(self) -> dict[str, wire.SnapshotManifest]:
        entries = {}
        with _damage_errors():
            for path in manifests.snapshots(self._out):
                with suppress(SegmentMissing):  # removed meanwhile: there is a newer one
                    entries[path.parent.name] = manifests.read_snapshot(path)
        return entries


class Reports:
    """Runs reports with the command line, because they read many files and rows."""

    def __init__(self, child: CommandRunner) -> None:
        self._child = child
        self._running = 0

    def run(self, name: str, query: ActivityQuery | DeliveryQuery) -> bytes:
        """Return the report as JSON from the command's output. The command's options are the
        query's fields."""
        if self._running >= REPORTS_MAX:
            raise wire.ReportUnavailable("too many reports are running", retry_after=2.0)
        query = msgspec.structs.replace(query, top=min(query.top, REPORT_ROWS_MAX))
        options = msgspec.to_builtins(query).items()
        chosen = [f"--{flag}={value}" for flag, value in options if value is not None]
        arguments = ["report", name, *chosen]
        self._running += 1
        try:
            done = self._child.run(arguments, REPORT_SECONDS_MAX, too_slow_hint=TOO_SLOW)
        finally:
            self._running -= 1
        if done.code == 0:
            return done.output
        error = error_of(done)
        if error.code in (EmptyRange.code, TablesMissing.code):
            raise wire.NothingInRange(error.error, hint=error.hint)
        if done.code == EXIT_INVALID:
            raise Invalid(error.error, hint=error.hint)
        raise wire.ReportUnavailable(error.error, details={"code": error.code}, hint=error.hint)


def _check_scope(log: str, principal: Principal) -> None:
    """Check the log's scope. Each log needs a separate scope, but the routes admit callers with
    any."""
    scope = LOGS[log].scope
    if not principal.allows(scope):
        raise refuse_scope(scope)


@lru_cache(maxsize=MANIFESTS_MAX)
def _read_manifest(directory: SegmentDirectory, path: Path, _changed_ns: int) -> SegmentManifest:
    """Return the cached manifest. Manifests rarely change, so each is parsed once."""
    return directory.read(path)


@contextmanager
def _damage_errors() -> Iterator[None]:
    try:
        yield
    except ExportError as error:
        raise wire.SegmentsDamaged(error.message, details={"code": error.code}) from None


def _bytes(row: wire.Segment | wire.Snapshot) -> int:
    return len(_encode(row)) + BESIDE_BYTES


def _snapshot_row(name: str, manifest: wire.SnapshotManifest) -> wire.Snapshot:
    return wire.Snapshot(name=name, **msgspec.structs.asdict(manifest))


def _segment_row(manifest: SegmentManifest) -> wire.Segment:
    return wire.Segment(name=manifest.file, **msgspec.structs.asdict(manifest))

"""The verbs: list segments and snapshots, read one, ask for a report.

Files are read in native threads.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.export import manifests, metrics, segment, wire
from appliance.export.child import Child, error_of
from appliance.export.manifests import Catalogue
from appliance.export.settings import JobsSettings
from appliance.export.trouble import EmptyRange, ExportError, SegmentMissing, TablesMissing
from appliance.export.wire import Manifest
from appliance.kernel.errors import Invalid
from appliance.kernel.page import take_page
from appliance.kernel.threads import in_thread

BESIDE_BYTES = 100  # of a page beside its rows: a share for each row is more than enough
EXIT_INVALID = 1  # of our command line: it was asked for nonsense
_encode = msgspec.json.Encoder().encode


class Part(NamedTuple):
    """Bytes `start` to `stop` of an open segment."""

    descriptor: int
    start: int
    stop: int


class Segments:
    """What lies in `jobs.export_dir`. Manifests never change, so each is parsed once."""

    def __init__(self, out: Path, settings: JobsSettings, page_bytes_max: int) -> None:
        self._catalogue = Catalogue(out)
        self._settings = settings
        self._page_bytes_max = page_bytes_max
        self._known: dict[tuple[str, int, int], Manifest] = {}

    def list_after(self, query: wire.SegmentsQuery) -> wire.SegmentList:
        manifests = in_thread(self._read_all)
        limit = min(query.limit, self._settings.segments_page_max)
        found, more = segment.page(manifests, query.after, limit)
        # What a segment replaces is named in it: thousands of names after a compaction.
        page, cut = take_page(map(_told, found), limit, self._page_bytes_max, _bytes)
        cursor = page[-1].last_event_id if page else query.after
        return wire.SegmentList(page, cursor, more or cut)

    def find(self, name: str) -> Manifest:
        if segment.stem_of(name) is None:
            raise wire.SegmentNotFound
        for one in in_thread(self._read_all):
            if one.file == name:
                return one
        raise wire.SegmentNotFound

    def open(self, manifest: Manifest, start: int, stop: int) -> Iterator[bytes]:
        """The bytes, a piece at a time. The file is open from now on: nobody takes it away."""
        path, chunk = self._catalogue.data(manifest), self._settings.download_chunk_bytes
        try:
            return Pieces(in_thread(_open, path, manifest.bytes, start, stop), chunk)
        except FileNotFoundError:
            raise wire.SegmentNotFound from None

    def _read_all(self) -> list[Manifest]:
        found = {}
        try:
            paths = self._catalogue.paths()
        except ExportError as error:
            raise _damaged(error) from None
        for path in paths:
            try:
                with manifests.reading(path.name):
                    stat = path.stat()
                key = (path.name, stat.st_ino, stat.st_mtime_ns)
                found[key] = self._known.get(key) or self._catalogue.read(path)
            except SegmentMissing:
                continue  # removed since the folder was read: something replaces it
            except ExportError as error:
                raise _damaged(error) from None
        self._known = found
        return list(found.values())


class Snapshots:
    """Those of the tables that lie in `jobs.export_dir`: a few, so each is read when asked for."""

    def __init__(self, out: Path, settings: JobsSettings, page_bytes_max: int) -> None:
        self._out = out.absolute()
        self._settings = settings
        self._page_bytes_max = page_bytes_max

    def newest(self, query: wire.SnapshotsQuery) -> wire.SnapshotList:
        limit = min(query.limit, self._settings.segments_page_max)
        found = in_thread(self._read_all)
        places = sorted(((one.as_of_event_id, name) for name, one in found.items()), reverse=True)
        if query.after is not None:
            event_id, _, name = query.after.partition(":")
            places = [place for place in places if place < (int(event_id), name)]
        rows = (_shown(name, found[name]) for _, name in places)
        page, more = take_page(rows, limit, self._page_bytes_max, _bytes)
        last = f"{page[-1].as_of_event_id}:{page[-1].name}" if more else None
        return wire.SnapshotList(page, more, last)

    def find(self, name: str, file: str) -> wire.SnapshotFile:
        """Only what a listing tells: neither name is made part of a path before that."""
        manifest = in_thread(self._read_all).get(name)
        for one in manifest.files.values() if manifest else ():
            if one.file == file:
                return one
        raise wire.SnapshotNotFound

    def open(self, name: str, file: wire.SnapshotFile, start: int, stop: int) -> Iterator[bytes]:
        path = self._out / manifests.SNAPSHOT / name / file.file
        try:
            part = in_thread(_open, path, file.bytes, start, stop)
        except FileNotFoundError:
            raise wire.SnapshotNotFound from None
        return Pieces(part, self._settings.download_chunk_bytes)

    def _read_all(self) -> dict[str, wire.SnapshotManifest]:
        found = {}
        for path in manifests.snapshots(self._out):
            try:
                found[path.parent.name] = manifests.read_snapshot(path)
            except SegmentMissing:
                continue  # a newer one was taken meanwhile
            except ExportError as error:
                raise _damaged(error) from None
        return found


class Reports:
    """Reports are made by our command line, for they read many files and add up many rows."""

    def __init__(self, child: Child, settings: JobsSettings) -> None:
        self._child = child
        self._settings = settings
        self._running = 0

    def activity(self, query: wire.ActivityQuery) -> bytes:
        """JSON of an ActivityReport, as the child printed it."""
        if self._running >= self._settings.reports_max:
            metrics.reports.labels("refused").inc()
            raise wire.ReportUnavailable("others are waiting for reports", retry_after=2.0)
        top = min(query.top, self._settings.report_rows_max)
        arguments = ["report", "activity", f"--top={top}"]
        asked = {"from": query.first, "to": query.last, "channel": query.channel}
        arguments += [f"--{name}={value}" for name, value in asked.items() if value is not None]
        self._running += 1
        try:
            done = self._child.run(arguments, self._settings.report_seconds_max)
        finally:
            self._running -= 1
        if done.code == 0:
            metrics.reports.labels("ok").inc()
            return done.out
        metrics.reports.labels("failed").inc()
        told = error_of(done)
        if told.code in (EmptyRange.code, TablesMissing.code):
            raise wire.NothingInRange(told.error, hint=told.hint)
        if done.code == EXIT_INVALID:
            raise Invalid(told.error, hint=told.hint)
        raise wire.ReportUnavailable(told.error, details={"code": told.code})


class Pieces:
    """An iterator that the server closes when the answer is over, however it ends."""

    def __init__(self, part: Part, chunk_bytes: int) -> None:
        self._part: Part | None = part
        self._chunk = chunk_bytes

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = self._part
        if part is None or part.start >= part.stop:
            self.close()
            raise StopIteration
        size = min(self._chunk, part.stop - part.start)
        data = in_thread(os.pread, part.descriptor, size, part.start)
        self._part = part._replace(start=part.start + len(data))
        if not data:  # cut off under our hands: the length that was promised is not kept
            self.close()
            raise StopIteration
        metrics.sent.inc(len(data))
        return data

    def close(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            os.close(part.descriptor)


def _open(path: Path, size: int, start: int, stop: int) -> Part:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise wire.SegmentsDamaged(f"{path.name} can't be read: {error.strerror}") from None
    if os.fstat(descriptor).st_size != size:
        os.close(descriptor)
        raise wire.SegmentsDamaged(f"{path.name} has not the size that its manifest says")
    return Part(descriptor, start, stop)


def _damaged(error: ExportError) -> wire.SegmentsDamaged:
    return wire.SegmentsDamaged(error.message, details={"code": error.code})


def _bytes(row: wire.Segment | wire.Snapshot) -> int:
    return len(_encode(row)) + BESIDE_BYTES


def _shown(name: str, one: wire.SnapshotManifest) -> wire.Snapshot:
    return wire.Snapshot(name=name, **msgspec.structs.asdict(one))


def _told(one: Manifest) -> wire.Segment:
    known = msgspec.structs.asdict(one)
    names = (field for field in wire.Segment.__struct_fields__ if field != "name")
    return wire.Segment(name=one.file, **{name: known[name] for name in names})

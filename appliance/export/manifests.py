"""Lists, locks and writes a segment directory atomically.

    <out>/events/date=2026-11-21/segment-<first>-<last>.parquet
    <out>/events/date=2026-11-21/segment-<first>-<last>.manifest.json

A file is renamed after the content is complete and synced, and the manifest is renamed after the
file. The next writer removes temporary files and segments without a manifest, which a crash leaves
behind.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from appliance.export import segment
from appliance.export.errors import (
    OutputBusy,
    OutputNotWritable,
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
    WrongHash,
)
from appliance.export.wire import SCHEMA_VERSION, SegmentManifest, SnapshotManifest
from appliance.kernel import whole_file
from appliance.kernel.file_lock import file_lock
from appliance.kernel.whole_file import sync_directory

EVENTS = "events"
SNAPSHOT = "snapshot"
SNAPSHOT_MANIFEST = "manifest.json"
RETENTION = "retention.json"
TEMPORARY = ".tmp-"
_LOCK = ".lock"
_MANIFEST_BYTES_MAX = 256 * 1024 * 1024  # a large archive's catalogue


class _Head(msgspec.Struct, frozen=True):
    schema_version: int
    kind: str


class _Retention(msgspec.Struct, frozen=True):
    """Retention removed all events up to this one."""

    begins_after: Annotated[int, msgspec.Meta(ge=0)]


class SegmentDirectory:
    """The segments of one kind in one directory."""

    def __init__(self, out: Path, kind: str = EVENTS) -> None:
        self.folder = out.absolute() / kind
        self.kind = kind

    def manifests(self) -> list[SegmentManifest]:
        """Return all manifests. Raises an error for the first invalid one."""
        return [self.read(path) for path in self.paths()]

    def paths(self) -> list[Path]:
        """Return all manifest paths. Other processes may remove some files meanwhile."""
        paths = []
        for day in self._days():
            paths += [
                day / name
                for name in _names(day)
                if name.endswith(segment.MANIFEST) and segment.stem_of(name)
            ]
        return sorted(paths, key=lambda path: path.name)

    def last_event_id(self) -> int:
        """Return the newest segment's last event, from the file name; 0 without segments."""
        return max((segment.last_of(path.name) for path in self.paths()), default=0)

    def read(self, path: Path) -> SegmentManifest:
        manifest: SegmentManifest = read_manifest(path, SegmentManifest, path.name, self.kind)
        name = segment.name_of(manifest)
        if (
            path.name != name + segment.MANIFEST
            or manifest.file != f"{name}.{manifest.format}"
            or path.parent.name != segment.folder(manifest.date)
        ):
            raise SegmentTorn(f"{path.name} describes another segment: {manifest.file}")
        return manifest

    def begins_after(self) -> int:
        """Return the newest event that retention removed; 0 if retention never ran."""
        path = self.folder / RETENTION
        try:
            with reading(RETENTION), path.open("rb") as file:
                return msgspec.json.decode(
                    file.read(_MANIFEST_BYTES_MAX), type=_Retention
                ).begins_after
        except SegmentMissing:
            return 0
        except msgspec.DecodeError as error:
            raise SegmentTorn(f"{RETENTION} is truncated or malformed: {error}") from None

    def begin_after(self, event_id: int) -> None:
        """Note that retention removes all events up to this one."""
        with writing():
            write_whole(self.folder / RETENTION, msgspec.json.encode(_Retention(event_id)))

    def data(self, manifest: SegmentManifest) -> Path:
        return self.folder / segment.folder(manifest.date) / manifest.file

    def publish(self, manifest: SegmentManifest, temporary: Path) -> None:
        """Rename `temporary` (complete and synced) to the segment, then write the manifest."""
        with writing():
            target = self.data(manifest)
            temporary.rename(target)
            sync_directory(target.parent)
            write_manifest(target.with_name(segment.name_of(manifest) + segment.MANIFEST), manifest)

    def temporary(self, date: str) -> Path:
        """Return a path for a new segment on that day. Creates the folder."""
        day = self.folder / segment.folder(date)
        with writing():
            if not day.exists():
                day.mkdir(parents=True)
                sync_directory(self.folder)
        return day / f"{TEMPORARY}{secrets.token_hex(8)}"

    def remove(self, manifest: SegmentManifest) -> None:
        """Remove the manifest first, then the segment."""
        with writing():
            path = self.data(manifest)
            (path.parent / (segment.name_of(manifest) + segment.MANIFEST)).unlink(missing_ok=True)
            sync_directory(path.parent)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                path.parent.rmdir()

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Lock the directory and remove the files that a killed writer left."""
        busy = OutputBusy(f"another export is writing to {self.folder.parent}")
        with ExitStack() as lock:
            with writing():
                self.folder.mkdir(parents=True, exist_ok=True)
                lock.enter_context(file_lock(self.folder / _LOCK, busy))
                self._remove_leftovers()
            yield

    def _remove_leftovers(self) -> None:
        for day in self._days():
            names = set(_names(day))
            for name in names:
                stem = segment.stem_of(name)
                orphan = stem is not None and stem + segment.MANIFEST not in names
                if orphan or name.startswith(TEMPORARY):
                    (day / name).unlink()

    def _days(self) -> list[Path]:
        return [self.folder / name for name in _names(self.folder) if name.startswith("date=")]


def snapshots(out: Path) -> list[Path]:
    """Return all snapshot manifests under `out`, sorted by name."""
    return sorted((out / SNAPSHOT).glob(f"[!.]*/{SNAPSHOT_MANIFEST}"))


def read_snapshot(path: Path) -> SnapshotManifest:
    name = f"the snapshot {path.parent.name}"
    manifest: SnapshotManifest = read_manifest(path, SnapshotManifest, name, SNAPSHOT)
    return manifest


def read_manifest(path: Path, kind: Any, name: str, wanted: str) -> Any:
    """Read a manifest, which errors call `name`. Raises SegmentMissing, SegmentTorn or
    SchemaVersionUnknown with the reason."""
    with reading(name), path.open("rb") as file:
        text = file.read(_MANIFEST_BYTES_MAX)
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.kind != wanted:
            raise SegmentTorn(f"{name} has kind {head.kind!r}, not {wanted!r}")
        if head.schema_version != SCHEMA_VERSION:
            raise SchemaVersionUnknown(
                f"{name} has schema version {head.schema_version}; this program knows"
                f" {SCHEMA_VERSION}"
            )
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{name} is truncated or malformed: {error}") from None


def check(path: Path, size: int, digest: str | None) -> None:
    """Compare size and hash (if `digest` is given) with the manifest."""
    with reading(path.name, "is missing, but its manifest exists"), path.open("rb") as file:
        actual = os.fstat(file.fileno()).st_size
        if actual != size:
            raise SegmentTorn(f"{path.name} has {actual} bytes; its manifest requires {size}")
        if digest and hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise WrongHash(f"{path.name} has another hash than its manifest")


def write_manifest(path: Path, manifest: Any) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` atomically; `only_writer` removes a killed writer's leftovers."""
    whole_file.write_whole(path, data, prefix=TEMPORARY, private=False)


@contextmanager
def reading(name: str, gone: str = "does not exist") -> Iterator[None]:
    """Convert OSError to SegmentMissing or SegmentTorn."""
    try:
        yield
    except FileNotFoundError:
        raise SegmentMissing(f"{name} {gone}") from None
    except OSError as error:
        raise SegmentTorn(f"{name} cannot be read: {error.strerror or error}") from None


@contextmanager
def writing(folder: Path | None = None) -> Iterator[None]:
    """Convert OSError to OutputNotWritable. `folder`: the name in errors without a file, such as
    a full disk error."""
    try:
        yield
    except OSError as error:
        where = f" {error.filename or folder or ''}".rstrip()
        raise OutputNotWritable(f"cannot write{where}: {error.strerror or error}") from error


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SegmentTorn(f"{folder} cannot be read: {error.strerror}") from None

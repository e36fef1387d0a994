"""A directory of segments: what is in it, who may write to it, and writing that never shows halves.

    <out>/events/date=2026-11-21/segment-<first>-<last>.parquet
    <out>/events/date=2026-11-21/segment-<first>-<last>.manifest.json

A file gets its name once it is whole and synced, its manifest after that. What a crash leaves
(a temporary file, a segment without manifest) is nobody's, and is removed by the next writer.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import segment
from appliance.export.trouble import (
    OutputBusy,
    OutputNotWritable,
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
    WrongHash,
)
from appliance.export.wire import SCHEMA_VERSION, Manifest, SnapshotManifest
from appliance.kernel.datadir import sync_directory

EVENTS = "events"
SNAPSHOT = "snapshot"
SNAPSHOT_MANIFEST = "manifest.json"
TEMPORARY = ".tmp-"
_LOCK = ".lock"
_MANIFEST_BYTES_MAX = 4 * 1024 * 1024


class _Head(msgspec.Struct, frozen=True):
    schema_version: int
    kind: str


class Catalogue:
    """The segments of one kind in one directory."""

    def __init__(self, out: Path, kind: str = EVENTS) -> None:
        self.folder = out.absolute() / kind
        self.kind = kind

    def manifests(self) -> list[Manifest]:
        """All there are. Raises what is wrong with the first that can't be believed."""
        return [self.read(path) for path in self.paths()]

    def paths(self) -> list[Path]:
        """Of all manifests. One that is removed meanwhile was replaced, or too old."""
        found = []
        for day in self._days():
            found += [
                day / name
                for name in _names(day)
                if name.endswith(segment.MANIFEST) and segment.stem_of(name)
            ]
        return sorted(found, key=lambda path: path.name)

    def last_event_id(self) -> int:
        """Of the newest segment, by its name alone; 0 where there is none."""
        return max((segment.last_of(path.name) for path in self.paths()), default=0)

    def read(self, path: Path) -> Manifest:
        with reading(path.name), path.open("rb") as file:
            text = file.read(_MANIFEST_BYTES_MAX)
        manifest: Manifest = decode(text, Manifest, path.name, self.kind)
        name = segment.name_of(manifest)
        if (
            path.name != name + segment.MANIFEST
            or manifest.file != f"{name}.{manifest.format}"
            or path.parent.name != segment.folder(manifest.date)
        ):
            raise SegmentTorn(f"{path.name} speaks of another segment: {manifest.file}")
        return manifest

    def data(self, manifest: Manifest) -> Path:
        return self.folder / segment.folder(manifest.date) / manifest.file

    def publish(self, manifest: Manifest, temporary: Path) -> None:
        """`temporary` (whole and synced) becomes the segment, then the manifest says so."""
        with writing():
            target = self.data(manifest)
            temporary.rename(target)
            sync_directory(target.parent)
            self._write(target.parent, segment.name_of(manifest) + segment.MANIFEST, manifest)

    def temporary(self, date: str) -> Path:
        """A name for a file that becomes a segment of that day; its folder exists then."""
        day = self.folder / segment.folder(date)
        with writing():
            if not day.exists():
                day.mkdir(parents=True)
                sync_directory(self.folder)
        return day / f"{TEMPORARY}{secrets.token_hex(8)}"

    def remove(self, manifest: Manifest) -> None:
        """First it is not believed any more, then it is gone."""
        with writing():
            path = self.data(manifest)
            (path.parent / (segment.name_of(manifest) + segment.MANIFEST)).unlink(missing_ok=True)
            sync_directory(path.parent)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                path.parent.rmdir()

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Holds the directory's lock, and clears away what a killed writer left."""
        with writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self.folder / _LOCK, flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputBusy(f"another export writes into {self.folder.parent}") from None
            with writing():
                self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        for day in self._days():
            names = set(_names(day))
            for name in names:
                known = segment.stem_of(name)
                orphan = known is not None and known + segment.MANIFEST not in names
                if orphan or name.startswith(TEMPORARY):
                    (day / name).unlink()

    def _days(self) -> list[Path]:
        return [self.folder / name for name in _names(self.folder) if name.startswith("date=")]

    def _write(self, day: Path, name: str, manifest: Manifest) -> None:
        write_whole(
            day / name, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
        )


def snapshots(out: Path) -> list[Path]:
    """The manifests of all snapshots under `out`, in the order of names."""
    return sorted((out / SNAPSHOT).glob(f"[!.]*/{SNAPSHOT_MANIFEST}"))


def read_snapshot(path: Path) -> SnapshotManifest:
    with reading(f"the snapshot {path.parent.name}"), path.open("rb") as file:
        text = file.read(_MANIFEST_BYTES_MAX)
    manifest: SnapshotManifest = decode(text, SnapshotManifest, path.name, SNAPSHOT)
    return manifest


def decode(text: bytes, kind: Any, name: str, wanted: str) -> Any:
    """A manifest's struct; what it is not, is said in a sentence."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.kind != wanted:
            raise SegmentTorn(f"{name} is of kind {head.kind!r}, not {wanted!r}")
        if head.schema_version != SCHEMA_VERSION:
            raise SchemaVersionUnknown(
                f"{name} has schema version {head.schema_version}; this program knows"
                f" {SCHEMA_VERSION}"
            )
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{name} is cut off or malformed: {error}") from None


def check(path: Path, size: int, digest: str | None) -> None:
    """The bytes are those of the manifest (without `digest`: so many), or it is said what is."""
    with reading(path.name, "is missing; its manifest is there"), path.open("rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise SegmentTorn(f"{path.name} has {found} bytes; its manifest says {size}")
        if digest and hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise WrongHash(f"{path.name} holds other bytes than its manifest says")


def write_whole(path: Path, data: bytes) -> None:
    """At `path` are all of `data`, synced, or what was there before."""
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        error.filename = str(path)  # not a name that nobody knows
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def reading(name: str, gone: str = "is gone") -> Iterator[None]:
    """The system's refusals as ours: not there any more, or not to be read."""
    try:
        yield
    except FileNotFoundError:
        raise SegmentMissing(f"{name} {gone}") from None
    except OSError as error:
        raise SegmentTorn(f"{name} can't be read: {error.strerror or error}") from None


@contextmanager
def writing() -> Iterator[None]:
    """The system's refusals as ours."""
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise OutputNotWritable(f"can't write{where}: {error.strerror or error}") from error


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SegmentTorn(f"{folder} can't be read: {error.strerror}") from None

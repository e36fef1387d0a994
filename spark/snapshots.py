"""Reads table snapshots beside exported segments, and chooses the one to compare a log with."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spark import schemas, segments
from spark.errors import SegmentMissing, SegmentTorn
from spark.locations import Location
from spark.segments import SegmentFile

FOLDER, MANIFEST = "snapshot", "manifest.json"
TABLES = frozenset(table["name"] for table in schemas.load("snapshot-1")["tables"])


class SnapshotTable(NamedTuple):
    file: str
    bytes: int
    sha256: str


class SnapshotFolder(NamedTuple):
    """A snapshot. last: the newest event that its tables show."""

    path: Location
    last: int
    format: str
    tables: dict[str, SnapshotTable]


def every(root: Location) -> list[SnapshotFolder]:
    """Return the complete snapshots below `root`. Raises SegmentTorn."""
    files = root.glob(f"{FOLDER}/[!.]*/{MANIFEST}")  # without snapshots in progress
    return [parse(segments.read_json(file, FOLDER), file.parent) for file in files]


def parse(fields: Mapping[str, Any], folder: Location) -> SnapshotFolder:
    """Parse the manifest for the snapshot in `folder`. Raises SegmentTorn."""
    try:
        tables = {
            name: SnapshotTable(entry["file"], int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in fields["files"].items()
        }
        made = SnapshotFolder(folder, int(fields["as_of_event_id"]), fields["format"], tables)
        names = [folder.name, *(table.file for table in tables.values())]
        sound = tables.keys() >= TABLES and all(map(segments.FILE_NAME.fullmatch, names))
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise SegmentTorn(
            f"the manifest of {folder} lacks a table, or has a missing field or one of another type"
        )
    return made


def choose(
    snapshots: Iterable[SnapshotFolder], exported: Iterable[SegmentFile], source: object
) -> SnapshotFolder:
    """Return the newest snapshot that the log reaches, or else the oldest one, which shows the
    gap. Raises SegmentMissing without any."""
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.last)
    if not ordered:
        raise SegmentMissing(f"{source} has no snapshot", "make one: agentlip export snapshot")
    last = max((segment.last for segment in exported), default=0)
    return ([snapshot for snapshot in ordered if snapshot.last <= last] or ordered[:1])[-1]

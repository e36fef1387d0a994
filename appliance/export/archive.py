"""Reads an archive of old segments, which the Spark job `archive` writes: the catalogue and the
files.

<dir>/catalogue.json
<dir>/<log>/year=2026/month=02/<day>-<first>-<last>-<hash>.parquet
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.export import manifests, table_writer
from appliance.export.errors import SegmentMissing, SegmentTorn
from appliance.export.verify import VerificationProblem, note_errors
from appliance.export.wire import Count, Date, Digest, SegmentManifest
from appliance.kernel.errors import Invalid

CATALOGUE = "catalogue.json"
ArchivePath = Annotated[
    str, Meta(max_length=300, pattern=r"^[a-z]+/year=\d{4}/month=\d{2}/[A-Za-z0-9-]+\.parquet$")
]
EventId = Annotated[int, Meta(ge=1)]


class ArchivedSegment(Struct, frozen=True):
    """A segment with archived rows, as the segment's manifest described it."""

    epoch: str
    date: Date
    first_event_id: EventId
    last_event_id: EventId
    rows: EventId
    sha256: Digest


class ArchivedFile(Struct, frozen=True):
    """A file with one day and one epoch, sorted by id."""

    file: ArchivePath
    date: Date
    epoch: str
    first_event_id: EventId
    last_event_id: EventId
    rows: EventId
    bytes: Count
    sha256: Digest


class ArchivedLog(Struct, frozen=True):
    """A log's archived segments and files. `cuts`: (epoch, last id) of each epoch that a restore
    ended; later events were discarded."""

    segments: tuple[ArchivedSegment, ...]
    files: tuple[ArchivedFile, ...]
    cuts: tuple[tuple[str, int], ...] = ()
    gaps: tuple[str, ...] = ()


class Catalogue(Struct, frozen=True):
    schema_version: int
    kind: Literal["archive"]
    logs: dict[str, ArchivedLog]


class ArchiveVerification(Struct):
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[VerificationProblem] = []
    gaps: list[str] = []


class Archive:
    """An archive directory. Verified files are remembered for the object's lifetime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / CATALOGUE
        catalogue = manifests.read_manifest(path, Catalogue, str(path), "archive")
        self.logs: dict[str, ArchivedLog] = catalogue.logs
        self._segments = {kind: set(log.segments) for kind, log in self.logs.items()}
        self._verified: set[str] = set()

    def log(self, kind: str) -> ArchivedLog:
        return self.logs.get(kind, ArchivedLog((), ()))

    def verify(self, file: ArchivedFile) -> None:
        """Compare a file's bytes and rows with the catalogue."""
        path = self.folder / file.file
        manifests.check(path, file.bytes, file.sha256)
        with table_writer.open_parquet(path) as opened:
            extent = (*table_writer.id_range(opened), opened.metadata.num_rows)
        if extent != (file.first_event_id, file.last_event_id, file.rows):
            raise SegmentTorn(f"{file.file} has other rows than the catalogue lists")
        self._verified.add(file.file)

    def has(self, manifest: SegmentManifest) -> bool:
        """Return whether the archive has exactly this segment, in undamaged files."""
        fields = {name: getattr(manifest, name) for name in ArchivedSegment.__struct_fields__}
        if ArchivedSegment(**fields) not in self._segments.get(manifest.kind, ()):
            return False
        files = [
            file
            for file in self.log(manifest.kind).files
            if (file.date, file.epoch) == (manifest.date, manifest.epoch)
            and file.first_event_id <= manifest.last_event_id
            and file.last_event_id >= manifest.first_event_id
        ]
        try:
            for file in files:
                if file.file not in self._verified:
                    self.verify(file)
        except (SegmentMissing, Invalid):
            return False
        return sum(file.rows for file in files) >= manifest.rows


def removable_before(folder: Path, alive: Sequence[SegmentManifest], dates_before: str) -> str:
    """Return the day before which the archive has every segment, at most `dates_before`. Without
    a catalogue nothing is archived yet. Only files for removable segments are verified."""
    archive = Archive(folder) if (folder / CATALOGUE).exists() else None
    for manifest in sorted(alive, key=lambda manifest: manifest.date):
        if manifest.date >= dates_before:
            break
        if archive is None or not archive.has(manifest):
            return manifest.date
    return dates_before


def verify(folder: Path) -> ArchiveVerification:
    """Compare every file with the catalogue, byte by byte."""
    archive = Archive(folder)
    result = ArchiveVerification()
    for kind, log in sorted(archive.logs.items()):
        result.gaps += [f"{kind}: {gap}" for gap in log.gaps]
        for file in log.files:
            with note_errors(result.problems, file.file):
                archive.verify(file)
                result.files += 1
                result.rows += file.rows
                result.bytes += file.bytes
    return result

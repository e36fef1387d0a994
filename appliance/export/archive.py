"""An archive of old segments, which the Spark job `archive` writes: its catalogue, and its files.

<dir>/catalogue.json
<dir>/<log>/year=2026/month=02/<day>-<first>-<last>-<hash>.parquet
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from appliance.export import manifests, table_writer
from appliance.export.errors import ExportError, SchemaVersionUnknown, SegmentMissing, SegmentTorn
from appliance.export.wire import Count, Date, Digest, SegmentManifest
from appliance.kernel.errors import Invalid

CATALOGUE = "catalogue.json"
CATALOGUE_BYTES_MAX = 256 * 1024 * 1024
SCHEMA_VERSION = 1
ArchivePath = Annotated[
    str, Meta(max_length=300, pattern=r"^[a-z]+/year=\d{4}/month=\d{2}/[A-Za-z0-9-]+\.parquet$")
]
EventId = Annotated[int, Meta(ge=1)]


class ArchivedSegment(Struct, frozen=True):
    """A segment whose rows are in the archive, as its manifest described it."""

    epoch: str
    date: Date
    first_event_id: EventId
    last_event_id: EventId
    rows: EventId
    sha256: Digest


class ArchivedFile(Struct, frozen=True):
    """A file of one day and one epoch, in the order of ids."""

    file: ArchivePath
    date: Date
    epoch: str
    first_event_id: EventId
    last_event_id: EventId
    rows: EventId
    bytes: Count
    sha256: Digest


class ArchivedLog(Struct, frozen=True):
    """`cuts`: (epoch, last id) of epochs that a restore ended: what follows was discarded."""

    segments: tuple[ArchivedSegment, ...]
    files: tuple[ArchivedFile, ...]
    cuts: tuple[tuple[str, int], ...] = ()
    gaps: tuple[str, ...] = ()


class Catalogue(Struct, frozen=True):
    schema_version: int
    kind: Literal["archive"]
    logs: dict[str, ArchivedLog]


class ArchiveProblem(Struct, frozen=True):
    file: str
    code: str
    message: str
    exit_code: int


class ArchiveVerification(Struct):
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[ArchiveProblem] = []
    gaps: list[str] = []


class Archive:
    """An archive directory. Verified files are remembered for the life of the object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = read_catalogue(folder).logs
        self._segments = {
            (kind, segment.epoch, segment.first_event_id, segment.last_event_id): segment
            for kind, log in self.logs.items()
            for segment in log.segments
        }
        self._verified: set[str] = set()

    def log(self, kind: str) -> ArchivedLog:
        return self.logs.get(kind, ArchivedLog((), ()))

    def verify(self, file: ArchivedFile) -> None:
        """Compare the bytes and the rows of a file with the catalogue."""
        path = self.folder / file.file
        manifests.check(path, file.bytes, file.sha256)
        with table_writer.open_parquet(path) as opened:
            extent = (*table_writer.id_range(opened), opened.metadata.num_rows)
        if extent != (file.first_event_id, file.last_event_id, file.rows):
            raise SegmentTorn(f"{file.file} has other rows than the catalogue lists")
        self._verified.add(file.file)

    def lists(self, manifest: SegmentManifest) -> bool:
        """Whether the catalogue lists exactly this segment."""
        key = (
            manifest.kind, manifest.epoch, manifest.first_event_id, manifest.last_event_id,
        )  # fmt: skip
        segment = self._segments.get(key)
        return segment is not None and _is_same(segment, manifest)

    def has(self, manifest: SegmentManifest) -> bool:
        """Whether the archive has exactly this segment, in files that are whole."""
        if not self.lists(manifest):
            return False
        files = [
            file
            for file in self.log(manifest.kind).files
            if (file.date, file.epoch) == (manifest.date, manifest.epoch)
            and file.first_event_id <= manifest.last_event_id
            and file.last_event_id >= manifest.first_event_id
        ]
        if sum(file.rows for file in files) < manifest.rows:
            return False
        try:
            for file in files:
                if file.file not in self._verified:
                    self.verify(file)
        except (SegmentMissing, SegmentTorn, Invalid):
            return False
        return True


def removable_before(folder: Path, alive: Sequence[SegmentManifest], dates_before: str) -> str:
    """The day before which the archive has every segment, at most `dates_before`. Without a
    catalogue nothing is archived yet. Files are verified only for segments that are removed."""
    old = [manifest for manifest in alive if manifest.date < dates_before]
    if not old:
        return dates_before
    if not (folder / CATALOGUE).exists():
        return min(manifest.date for manifest in old)
    archive = Archive(folder)
    unlisted = [manifest.date for manifest in old if not archive.lists(manifest)]
    limit = min([dates_before, *unlisted])
    for manifest in old:
        if manifest.date < limit and not archive.has(manifest):
            limit = manifest.date
    return limit


def read_catalogue(folder: Path) -> Catalogue:
    path = folder / CATALOGUE
    with manifests.reading(str(path)), path.open("rb") as file:
        text = file.read(CATALOGUE_BYTES_MAX)
    try:
        catalogue = msgspec.json.decode(text, type=Catalogue)
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path} is truncated or malformed: {error}") from None
    if catalogue.schema_version != SCHEMA_VERSION:
        raise SchemaVersionUnknown(
            f"{path} has schema version {catalogue.schema_version}; this program knows"
            f" {SCHEMA_VERSION}"
        )
    return catalogue


def verify(folder: Path) -> ArchiveVerification:
    """Compare every file with the catalogue, byte by byte."""
    archive = Archive(folder)
    result = ArchiveVerification()
    for kind, log in sorted(archive.logs.items()):
        result.gaps = [*result.gaps, *(f"{kind}: {gap}" for gap in log.gaps)]
        for file in log.files:
            try:
                archive.verify(file)
            except ExportError as error:
                problem = ArchiveProblem(file.file, error.code, error.message, error.exit_code)
                result.problems = [*result.problems, problem]
                continue
            result.files += 1
            result.rows += file.rows
            result.bytes += file.bytes
    return result


def _is_same(segment: ArchivedSegment, manifest: SegmentManifest) -> bool:
    fields = ArchivedSegment.__struct_fields__
    return all(getattr(segment, name) == getattr(manifest, name) for name in fields)

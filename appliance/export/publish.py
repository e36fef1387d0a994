"""Publishes closed segments in object storage, where jobs on other machines read them.

    PREFIX/events/date=2026-11-21/segment-<first>-<last>.parquet
    PREFIX/events/date=2026-11-21/segment-<first>-<last>.manifest.json   written last

The names are the directory's names. A killed round is continued: a segment without a manifest is
not published yet, and is sent again unless the target has the complete file.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from appliance.export import manifests, segment
from appliance.export.errors import OtherHistory, SegmentMissing
from appliance.export.manifests import RETENTION, SegmentDirectory
from appliance.export.wire import SegmentManifest
from appliance.kernel.errors import ApplianceError

PIECE_BYTES = 1024 * 1024


class SegmentTarget(Protocol):
    """The target operations that publishing needs; backup targets have them."""

    def list(self, below: str = "") -> dict[str, int]: ...

    def read(self, name: str) -> Iterator[bytes]: ...

    def write(self, name: str, content: Iterable[bytes]) -> None: ...

    def create(self, name: str, content: bytes) -> bool: ...


def publish(directory: SegmentDirectory, target: SegmentTarget) -> int:
    """Send the segments that the target lacks, in order, and return the number sent. Raises
    OtherHistory if the target has a different segment with an equal name."""
    count = 0
    for manifest, there in _find_missing(directory, target):
        data, note = names(manifest)
        path = directory.data(manifest)
        manifests.check(path, manifest.bytes, manifest.sha256)
        if there.get(data) != manifest.bytes:
            target.write(data, _pieces(path))
        written = path.with_name(note.rpartition("/")[2]).read_bytes()
        if not target.create(note, written) and b"".join(target.read(note)) != written:
            raise OtherHistory(f"the target has another segment {manifest.file}")
        count += 1
    return count


def first_missing(directory: SegmentDirectory, target: SegmentTarget) -> str | None:
    """Return the first day with an unpublished segment: older segments may be removed here."""
    return min((manifest.date for manifest, _ in _find_missing(directory, target)), default=None)


def _find_missing(
    directory: SegmentDirectory, target: SegmentTarget
) -> Iterator[tuple[SegmentManifest, dict[str, int]]]:
    """Yield segments without a manifest at the target, with the sizes of the files already
    there."""
    alive = segment.live(directory.manifests())
    there = target.list(directory.kind) if alive else {}
    return ((manifest, there) for manifest in alive if names(manifest)[1] not in there)


def names(manifest: SegmentManifest) -> tuple[str, str]:
    """Return the names of a segment and the manifest at a target."""
    day = f"{manifest.kind}/{segment.folder(manifest.date)}"
    return f"{day}/{manifest.file}", f"{day}/{segment.name_of(manifest)}{segment.MANIFEST}"


class PublishedSegments(SegmentDirectory):
    """Segments at a target: all manifests are in `out`, and a segment only while it is read."""

    def __init__(self, out: Path, kind: str, target: SegmentTarget) -> None:
        super().__init__(out, kind)
        self._target = target
        for name in target.list(kind):
            if name.endswith((segment.MANIFEST, RETENTION)):
                self._fetch(out / name, name)

    def data(self, manifest: SegmentManifest) -> Path:
        path = super().data(manifest)
        for former in self.folder.rglob("segment-*"):
            if not former.name.endswith(segment.MANIFEST):
                former.unlink()
        try:
            self._fetch(path, names(manifest)[0])
        except ApplianceError as error:
            raise SegmentMissing(error.message) from None
        return path

    def _fetch(self, path: Path, name: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with manifests.writing(), path.open("wb") as file:
            file.writelines(self._target.read(name))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece

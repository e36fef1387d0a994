"""Is what the manifests say true? Reads every byte, changes nothing."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import manifests, schema, segment, table_writer
from appliance.export.manifests import SNAPSHOT_MANIFEST, Catalogue
from appliance.export.trouble import ExportError, LibraryMissing, SegmentMissing, SegmentTorn
from appliance.export.wire import Manifest
from appliance.kernel.errors import Invalid


class Problem(msgspec.Struct, frozen=True):
    file: str
    code: str
    sentence: str
    exit_code: int


class Verdict(msgspec.Struct):
    segments: int = 0
    snapshots: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Problem] = []


def verify(out: Path, tell: Callable[[str], None] | None = None) -> Verdict:
    """All segments and snapshots under `out`, each against its manifest, then the chain."""
    if not out.is_dir():
        raise Invalid(f"{out} is no directory", hint="agentlip export segments --out DIR")
    verdict = Verdict()
    segments = Catalogue(out)
    good: list[Manifest] = []
    for path in segments.paths():
        with _Noting(verdict, path.name):
            manifest = segments.read(path)
            good.append(manifest)
            _segment(segments.data(manifest), manifest)
            verdict.rows += manifest.rows
            verdict.bytes += manifest.bytes
        verdict.segments += 1
        if tell is not None:
            tell(path.name)
    for sentence in segment.problems_of_chain(segment.live(good)):
        _note(verdict, segments.kind, SegmentMissing(sentence))
    for path in manifests.snapshots(out):
        with _Noting(verdict, f"{path.parent.name}/{SNAPSHOT_MANIFEST}"):
            _snapshot(path, verdict)
        verdict.snapshots += 1
    return verdict


def raise_first(verdict: Verdict) -> None:
    """The first problem as an error, with how many there are besides."""
    if verdict.problems:
        first = verdict.problems[0]
        more = len(verdict.problems) - 1
        sentence = first.sentence + (f" (and {more} more)" if more else "")
        kinds = {kind.exit_code: kind for kind in _kinds()}
        raise kinds[first.exit_code](
            sentence, details={"problems": msgspec.to_builtins(verdict.problems)}
        )


def _kinds() -> Iterable[type[ExportError]]:
    return (kind for kind in ExportError.__subclasses__() if hasattr(kind, "exit_code"))


def _segment(path: Path, manifest: Manifest) -> None:
    manifests.check(path, manifest.bytes, manifest.sha256)
    first, last, rows, epochs = table_writer.extent(path, manifest.format)
    if (first, last, rows) != (manifest.first_event_id, manifest.last_event_id, manifest.rows):
        raise SegmentTorn(
            f"{path.name} holds {rows} events from {first} to {last}; its manifest says"
            f" {manifest.rows} from {manifest.first_event_id} to {manifest.last_event_id}"
        )
    if epochs != {manifest.epoch}:
        found = ", ".join(sorted(epochs))
        raise SegmentTorn(f"{path.name} is of epoch {found}; its manifest says {manifest.epoch}")


def _snapshot(path: Path, verdict: Verdict) -> None:
    manifest = manifests.read_snapshot(path)
    missing = {table.name for table in schema.snapshot()} - set(manifest.files)
    if missing:
        raise SegmentTorn(f"the snapshot {path.parent.name} lacks {', '.join(sorted(missing))}")
    for file in manifest.files.values():
        table = path.parent / file.file
        manifests.check(table, file.bytes, file.sha256)
        found = table_writer.count(table, manifest.format)
        if found != file.rows:
            raise SegmentTorn(f"{file.file} holds {found} rows; its manifest says {file.rows}")
        verdict.rows += file.rows
        verdict.bytes += file.bytes


class _Noting:
    """Errors of ours become problems of the verdict; a missing library is nobody's fault."""

    def __init__(self, verdict: Verdict, name: str) -> None:
        self._verdict = verdict
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if isinstance(error, ExportError) and not isinstance(error, LibraryMissing):
            _note(self._verdict, self._name, error)
            return True
        return False


def _note(verdict: Verdict, name: str, error: ExportError) -> None:
    problem = Problem(name, error.code, error.message, error.exit_code)
    verdict.problems = [*verdict.problems, problem]

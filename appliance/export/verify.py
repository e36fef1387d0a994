"""Compares the manifests with their files. Reads every byte and changes nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from appliance.export import manifests, schema, segment, table_writer
from appliance.export.errors import ExportError, LibraryMissing, SegmentMissing, SegmentTorn
from appliance.export.logs import EVENTS, LOGS, ExportedLog
from appliance.export.manifests import SNAPSHOT_MANIFEST, SegmentDirectory
from appliance.export.wire import SegmentManifest
from appliance.kernel.errors import Invalid


class VerificationProblem(msgspec.Struct, frozen=True):
    file: str
    code: str
    message: str
    exit_code: int


class VerificationResult(msgspec.Struct):
    segments: int = 0
    snapshots: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[VerificationProblem] = []


def verify(
    out: Path, open_segments: Callable[[Path, str], SegmentDirectory] = SegmentDirectory
) -> VerificationResult:
    """Verify all segments and snapshots under `out`, and each log's segment chain."""
    if not out.is_dir():
        raise Invalid(f"{out} is not a directory", hint="agentlip export segments --out DIR")
    result = VerificationResult()
    for log in LOGS.values():
        _log(open_segments(out, log.kind), log, result)
    for path in manifests.snapshots(out):
        with note_errors(result.problems, f"{path.parent.name}/{SNAPSHOT_MANIFEST}"):
            _verify_snapshot(path, result)
        result.snapshots += 1
    return result


def _log(segments: SegmentDirectory, log: ExportedLog, result: VerificationResult) -> None:
    good: list[SegmentManifest] = []
    folder = "" if log is EVENTS else f"{log.kind}/"
    for path in segments.paths():
        with note_errors(result.problems, folder + path.name):
            manifest = segments.read(path)
            good.append(manifest)
            _verify_segment(segments.data(manifest), manifest, log)
            result.rows += manifest.rows
            result.bytes += manifest.bytes
        result.segments += 1
    begin = 0
    with note_errors(result.problems, folder + manifests.RETENTION):
        begin = segments.begins_after()
    for sentence in segment.problems_of_chain(segment.live(good), begin):
        with note_errors(result.problems, log.kind):
            raise SegmentMissing(sentence)


def raise_first(problems: Sequence[VerificationProblem]) -> None:
    """Raise the first problem, with the number of further problems."""
    if problems:
        first, more = problems[0], len(problems) - 1
        sentence = first.message + (f" (and {more} more)" if more else "")
        kinds = {kind.exit_code: kind for kind in ExportError.__subclasses__()}
        raise kinds[first.exit_code](sentence, details={"problems": msgspec.to_builtins(problems)})


def _verify_segment(path: Path, manifest: SegmentManifest, log: ExportedLog) -> None:
    manifests.check(path, manifest.bytes, manifest.sha256)
    first, last, rows, epochs = table_writer.extent(path, manifest.format, log.columns)
    if (first, last, rows) != (manifest.first_event_id, manifest.last_event_id, manifest.rows):
        raise SegmentTorn(
            f"{path.name} has {rows} events from {first} to {last}; its manifest lists"
            f" {manifest.rows} from {manifest.first_event_id} to {manifest.last_event_id}"
        )
    if epochs != {manifest.epoch}:
        names = ", ".join(sorted(epochs))
        raise SegmentTorn(f"{path.name} has epoch {names}; its manifest has {manifest.epoch}")


def _verify_snapshot(path: Path, result: VerificationResult) -> None:
    manifest = manifests.read_snapshot(path)
    missing = {table.name for table in schema.snapshot()} - set(manifest.files)
    if missing:
        raise SegmentTorn(f"the snapshot {path.parent.name} has no {', '.join(sorted(missing))}")
    for file in manifest.files.values():
        table = path.parent / file.file
        manifests.check(table, file.bytes, file.sha256)
        rows = sum(1 for _ in table_writer.rows(table, manifest.format))
        if rows != file.rows:
            raise SegmentTorn(f"{file.file} has {rows} rows; its manifest lists {file.rows}")
        result.rows += file.rows
        result.bytes += file.bytes


@contextmanager
def note_errors(problems: list[VerificationProblem], name: str) -> Iterator[None]:
    """Record export errors as problems. A missing library is not a problem, so that error is
    raised."""
    try:
        yield
    except LibraryMissing:
        raise
    except ExportError as error:
        problems.append(VerificationProblem(name, error.code, error.message, error.exit_code))

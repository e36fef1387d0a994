"""`agentlip export`: writes logs as segments and tables as a snapshot, and verifies both."""

import os
from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import ProgressLine, Session, plain_app
from appliance.export import snapshot, table_writer, verify
from appliance.export.cli_target import open_target
from appliance.export.compact import Compacted
from appliance.export.exporter import ExportRound
from appliance.export.manifests import SNAPSHOT, SegmentDirectory
from appliance.export.publish import PublishedSegments
from appliance.export.rounds import Exports
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.workspace.datadir import DataDir

app = plain_app(
    "Export: the logs as closed segments, the tables as a snapshot.\n\n"
    "Exit codes: 0 success, 1 error, 10 segment missing, 11 torn, 12 wrong hash, 13 unknown"
    " schema version, 14 empty range, 15 output not writable, 16 another export runs"
    " there, 17 another history, 18 a library is missing, 19 an event that can't be exported.",
    "Administration/export",
)

OutFlag = Annotated[
    Path | None, typer.Option("--out", help="Output directory (default: export.export_dir).")
]
SNAPSHOTS_KEPT = 5
FirstFlag = Annotated[
    str | None,
    typer.Option("--from", metavar="DAY", help="First day in UTC, such as 2026-11-01."),
]
LastFlag = Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last day in UTC.")]
ExportFormat = StrEnum("ExportFormat", ["parquet", "jsonl"])
FormatFlag = Annotated[
    ExportFormat | None, typer.Option("--format", help="Format (default: export.export_format).")
]


class ExportSection(msgspec.Struct, frozen=True):
    """The section [export] of agentlip.toml."""

    export: ExportSettings = ExportSettings()


@app.command("segments")
def export_segments(
    session: Session,
    out: OutFlag = None,
    format_name: FormatFlag = None,
    due: Annotated[
        bool, typer.Option("--due", help="Skip the last segment if it is neither full nor due.")
    ] = False,
) -> None:
    """Write new rows of all logs as closed segments.

    Example: agentlip export segments --out /data/out
    """
    exports = _exports(session, out, format_name)
    line = ProgressLine(SystemClock(), not session.machine)
    with exports.only_writer():
        done = exports.export(due_only=due, progress=line.show)
        exports.publish()
    for log in done:
        if log.missing:
            session.note(
                f"warning: {log.missing:,} rows were removed from the log {log.log} before they"
                f" were exported, the first {log.gaps[0].first}"
            )
    lines = [
        f"{log.log}: {log.rows:,} rows in {log.segments} segments, {log.waiting:,} pending"
        for log in done
        if log.segments or log.waiting
    ]
    _answer(session, exports.out, done, lines or ["nothing new"])


@app.command("snapshot")
def export_snapshot(
    session: Session,
    out: OutFlag = None,
    format_name: FormatFlag = None,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Newest snapshots that are kept; 0: all.")
    ] = SNAPSHOTS_KEPT,
) -> None:
    """Write the current tables for the audit.

    Example: agentlip export snapshot --out /data/out
    """
    datadir, settings = workspace_of(session, format_name)
    table_writer.require(settings.export_format)
    target = out or datadir.workspace / settings.export_dir
    with open_log(datadir) as log, SegmentDirectory(target, SNAPSHOT).only_writer():
        path, manifest = snapshot.write(log, target, settings.export_format, keep, SystemClock())
    rows = sum(file.rows for file in manifest.files.values())
    answer = {"path": str(path), **msgspec.to_builtins(manifest)}
    session.answer(answer, f"{rows:,} rows up to event {manifest.as_of_event_id} in {path}")


@app.command("compact")
def compact_segments(session: Session, out: OutFlag = None) -> None:
    """Merge small segments, and prune those older than export.retention_days."""
    exports = _exports(session, out)
    with exports.only_writer():
        done = exports.compact()
    lines = [
        f"{log.log}: {log.replaced} segments written as {log.written}, {log.removed} removed"
        for log in done
        if log.written or log.removed
    ]
    _answer(session, exports.out, done, lines or ["nothing to do"])


@app.command("verify")
def verify_export(
    session: Session,
    directory: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="Directory or s3:// URL with segments.")
    ],
) -> None:
    """Compare all manifests with their files byte by byte.

    Example: agentlip export verify /data/out
    """
    if "://" in directory:
        datadir, _ = workspace_of(session)
        target = open_target(directory, datadir)
        with TemporaryDirectory() as folder:
            result = verify.verify(Path(folder), partial(PublishedSegments, target=target))
    else:
        result = verify.verify(Path(directory))
    for problem in result.problems:
        session.note(f"{problem.file}: {problem.message}")
    verify.raise_first(result.problems)
    session.answer(
        msgspec.to_builtins(result),
        f"{result.segments} segments and {result.snapshots} snapshots are whole:"
        f" {result.rows:,} rows, {result.bytes:,} bytes",
    )


def workspace_of(
    session: Session, format_name: str | None = None
) -> tuple[DataDir, ExportSettings]:
    """Return the directory and settings. `format_name` overrides the configured format."""
    datadir = session.datadir
    if not datadir.database("hub").exists():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    settings = config.load(ExportSection, datadir.settings_file, os.environ).export
    if format_name is not None:
        settings = msgspec.structs.replace(settings, export_format=format_name)
    return datadir, settings


def day_of(text: str | None) -> str | None:
    """Return the day given with --from or --to. Raises Invalid."""
    try:
        return None if text is None else date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid(f"{text} is not a date", hint="use a date such as 2026-11-21") from None


def _exports(session: Session, out: Path | None, format_name: str | None = None) -> Exports:
    datadir, settings = workspace_of(session, format_name)
    target = open_target(settings.target, datadir) if settings.target else None
    return Exports(datadir, settings, SystemClock(), out, target)


def _answer(
    session: Session, out: Path, done: Sequence[ExportRound | Compacted], lines: list[str]
) -> None:
    answer = {"out": str(out), "logs": msgspec.to_builtins(done)}
    session.answer(answer, "\n".join([*lines, f"under {out}"]))

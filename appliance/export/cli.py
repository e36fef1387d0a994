"""`agentlip export`: writes logs as segments and tables as a snapshot, and verifies both."""

import os
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import ProgressLine, Session, plain_app
from appliance.export import snapshot, table_writer, verify
from appliance.export.cli_target import S3Target, open_target
from appliance.export.compact import Tidied
from appliance.export.exporter import ExportRound
from appliance.export.logs import EVENTS, LOGS, ExportedLog, log_of
from appliance.export.manifests import SNAPSHOT, SegmentDirectory
from appliance.export.publish import PublishedSegments
from appliance.export.rounds import Exports
from appliance.export.settings import ExportSettings, Format
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
LogFlag = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="LOG", help=f"Only this log ({', '.join(LOGS)}); repeatable."),
]
SNAPSHOTS_KEPT = 5
FirstFlag = Annotated[
    str | None,
    typer.Option("--from", metavar="DAY", help="First day in UTC, such as 2026-11-01."),
]
LastFlag = Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last day in UTC.")]
FormatFlag = Annotated[
    str | None, typer.Option("--format", help="parquet or jsonl (default: export.export_format).")
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
    logs: LogFlag = None,
) -> None:
    """Write new rows of all logs as closed segments: agentlip export segments --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    exports = Exports(
        datadir, target, settings, SystemClock(), _choose_logs(logs), _target(datadir, settings)
    )
    with exports.only_writer():
        done = exports.export(kind, due_only=due, tell=_progress(session))
        exports.publish()
    _tell(session, done, target)


@app.command("snapshot")
def export_snapshot(
    session: Session,
    out: OutFlag = None,
    format_name: FormatFlag = None,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Newest snapshots that are kept; 0: all.")
    ] = SNAPSHOTS_KEPT,
) -> None:
    """Write the current tables for the audit: agentlip export snapshot --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    lock = SegmentDirectory(target, SNAPSHOT)
    with open_log(datadir) as log, lock.only_writer():
        path, manifest = snapshot.take(log, target, kind, keep, SystemClock())
    rows = sum(file.rows for file in manifest.files.values())
    answer = {"path": str(path), **msgspec.to_builtins(manifest)}
    session.answer(answer, f"{rows:,} rows as of event {manifest.as_of_event_id} in {path}")


@app.command("tidy")
def tidy_segments(session: Session, out: OutFlag = None) -> None:
    """Merge small segments and remove those past their retention."""
    datadir, settings = workspace_of(session)
    target = out or out_dir(datadir, settings)
    published = _target(datadir, settings)
    exports = Exports(datadir, target, settings, SystemClock(), target=published)
    with exports.only_writer():
        done = exports.tidy()
    answer = {"out": str(target), **_of_events(done), "logs": msgspec.to_builtins(done)}
    session.answer(
        answer,
        "\n".join(
            f"{_of(round_.log)}{round_.replaced} segments written as {round_.written},"
            f" {round_.removed} removed"
            for round_ in done
            if round_.log == EVENTS.kind or round_.written or round_.removed
        ),
    )


@app.command("verify")
def verify_export(
    session: Session,
    directory: Annotated[
        str, typer.Argument(metavar="DIR|URL", help="Directory or s3:// URL of segments.")
    ],
) -> None:
    """Compare all manifests with their files byte by byte: agentlip export verify /data/out"""
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


def workspace_of(session: Session) -> tuple[DataDir, ExportSettings]:
    datadir = session.datadir
    if not datadir.database("hub").exists():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    settings = config.load(ExportSection, datadir.settings_file, os.environ).export
    if settings.archive_dir:
        folder = str(datadir.workspace / settings.archive_dir)
        settings = msgspec.structs.replace(settings, archive_dir=folder)
    return datadir, settings


def _target(datadir: DataDir, settings: ExportSettings) -> S3Target | None:
    return open_target(settings.target, datadir) if settings.target else None


def out_dir(datadir: DataDir, settings: ExportSettings) -> Path:
    return datadir.workspace / settings.export_dir


def day_of(text: str | None) -> str | None:
    """The day of --from or --to. Raises Invalid."""
    try:
        return None if text is None else date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid(f"{text} is not a date", hint="use a date such as 2026-11-21") from None


def _format(wanted: str | None, settings: ExportSettings) -> Format:
    name = wanted or settings.export_format
    if name == "parquet":
        table_writer.library()
        return "parquet"
    if name == "jsonl":
        return "jsonl"
    raise Invalid(f"unknown format {name}", hint="--format parquet or --format jsonl")


def _choose_logs(kinds: list[str] | None) -> list[ExportedLog]:
    return [log_of(kind) for kind in dict.fromkeys(kinds or LOGS)]


def _progress(session: Session) -> Callable[[int], None]:
    clock = SystemClock()
    line, began, rows = ProgressLine(clock, not session.machine), clock.monotonic(), 0

    def add(more: int) -> None:
        nonlocal rows
        rows += more
        line.show(f"{rows:,} events, {rows / max(clock.monotonic() - began, 1):,.0f}/s")

    return add


def _tell(session: Session, done: list[ExportRound], out: Path) -> None:
    answer = {"out": str(out), **_of_events(done, out), "logs": msgspec.to_builtins(done)}
    news = [round_ for round_ in done if round_.segments or round_.waiting]
    first, *lines = [f"{_of(round_.log)}{_line(round_)}" for round_ in news] or ["nothing new"]
    for round_ in done:
        if round_.missing:
            session.note(
                f"warning: {_rows(round_.missing, round_.log)} were removed from the log"
                f" {round_.log} before they were exported, the first {round_.gaps[0].first}"
            )
    session.answer(answer, "\n".join([f"{first} under {out}", *lines]))


def _of_events(done: Sequence[ExportRound | Tidied], out: Path | None = None) -> dict[str, Any]:
    """The result for the hub's log, whose fields are those of the answer too."""
    of_events = next((round_ for round_ in done if round_.log == EVENTS.kind), None)
    if of_events is None:
        last = SegmentDirectory(out).last_event_id() if out else 0
        of_events = ExportRound(last_event_id=last)
    fields: dict[str, Any] = msgspec.to_builtins(of_events)
    return {name: value for name, value in fields.items() if name not in ("log", "state")}


def _line(done: ExportRound) -> str:
    """Rows in closed segments, and those that wait for one."""
    many = "segment" if done.segments == 1 else "segments"
    closed = f"{_rows(done.rows, done.log)} in {done.segments} {many}"
    parts = [closed] if done.segments else []
    return "; ".join(parts + ([f"{done.waiting:,} pending"] if done.waiting else []))


def _rows(count: int, kind: str) -> str:
    return f"{count:,} {'events' if kind == EVENTS.kind else 'rows'}"


def _of(kind: str) -> str:
    return "" if kind == EVENTS.kind else f"{kind}: "

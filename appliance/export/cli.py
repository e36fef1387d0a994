"""`agentlip export`: writes the log as segments and the tables as a snapshot, and verifies both."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app, write_now
from appliance.export import arrow_log_reader, compact, snapshot, table_writer, verify
from appliance.export.exporter import Exporter, ExportRound, limits_of
from appliance.export.manifests import SNAPSHOT, SegmentDirectory
from appliance.export.segment import DAY_MS, name_of
from appliance.export.settings import ExportSettings, Format
from appliance.export.source import open_log
from appliance.export.wire import SegmentManifest
from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, discover
from appliance.kernel.errors import Invalid

app = plain_app(
    "Export: the log as closed segments, the tables as a snapshot.\n\n"
    "Exit codes: 0 success, 1 error, 10 segment missing, 11 torn, 12 wrong hash, 13 unknown"
    " schema version, 14 empty range, 15 output not writable, 16 another export runs"
    " there, 17 another history, 18 a library is missing, 19 an event that can't be exported."
)

OutFlag = Annotated[
    Path | None, typer.Option("--out", help="Output directory (default: export.export_dir).")
]
FormatFlag = Annotated[
    str | None, typer.Option("--format", help="parquet or jsonl (default: export.export_format).")
]


class ExportSection(msgspec.Struct, frozen=True):
    """The section [export] of agentlip.toml."""

    export: ExportSettings = ExportSettings()


@app.command("segments")
@common
def export_segments(
    session: Session,
    out: OutFlag = None,
    format_name: FormatFlag = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new events until Ctrl-C.")
    ] = False,
    due: Annotated[
        bool, typer.Option("--due", help="Skip the last segment if it is neither full nor due.")
    ] = False,
) -> None:
    """Write new events as closed segments: agentlip export segments --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    catalogue = SegmentDirectory(target)
    with arrow_log_reader.open_fast(datadir, kind) as log, catalogue.only_writer():
        exporter = Exporter(log, catalogue, kind, limits_of(settings), SystemClock())
        if follow:
            _follow(session, exporter, catalogue, settings)
        else:
            progress = _Progress(session)
            done = exporter.run(due_only=due, tell=progress.add)
            _tell(session, done, target)


@app.command("snapshot")
@common
def export_snapshot(session: Session, out: OutFlag = None, format_name: FormatFlag = None) -> None:
    """Write the current tables for the audit: agentlip export snapshot --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    lock = SegmentDirectory(target, SNAPSHOT)
    with open_log(datadir) as log, lock.only_writer():
        path, manifest = snapshot.take(log, target, kind, settings.snapshots_kept, SystemClock())
    rows = sum(file.rows for file in manifest.files.values())
    answer = {"path": str(path), **msgspec.to_builtins(manifest)}
    session.answer(answer, f"{rows:,} rows as of event {manifest.as_of_event_id} in {path}")


@app.command("tidy")
@common
def tidy_segments(session: Session, out: OutFlag = None) -> None:
    """Merge small segments and remove those past their retention."""
    datadir, settings = workspace_of(session)
    target = out or out_dir(datadir, settings)
    catalogue = SegmentDirectory(target)
    with catalogue.only_writer():
        done = compact.tidy(catalogue, settings, SystemClock())
    session.answer(
        {"out": str(target), **msgspec.to_builtins(done)},
        f"{done.replaced} segments written as {done.written}, {done.removed} removed",
    )


@app.command("verify")
@common
def verify_export(
    session: Session,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory with exported segments.")
    ],
) -> None:
    """Compare all manifests with their files byte by byte: agentlip export verify /data/out"""
    result = verify.verify(directory)
    if result.problems and not session.machine:
        for problem in result.problems:
            note(f"{problem.file}: {problem.message}")
    verify.raise_first(result)
    session.answer(
        msgspec.to_builtins(result),
        f"{result.segments} segments and {result.snapshots} snapshots are whole:"
        f" {result.rows:,} rows, {result.bytes:,} bytes",
    )


def workspace_of(session: Session) -> tuple[DataDir, ExportSettings]:
    datadir = discover(Path.cwd()) if session.workspace is None else DataDir(session.workspace)
    if not datadir.database("hub").exists():
        raise Invalid(f"{datadir.workspace} is not a workspace", hint="agentlip init")
    return datadir, config.load(ExportSection, datadir.settings_file, os.environ).export


def out_dir(datadir: DataDir, settings: ExportSettings) -> Path:
    return datadir.workspace / settings.export_dir


def _format(wanted: str | None, settings: ExportSettings) -> Format:
    name = wanted or settings.export_format
    if name == "parquet":
        table_writer.library()
        return "parquet"
    if name == "jsonl":
        return "jsonl"
    raise Invalid(f"unknown format {name}", hint="--format parquet or --format jsonl")


def _follow(
    session: Session, exporter: Exporter, catalogue: SegmentDirectory, settings: ExportSettings
) -> None:
    def done(manifest: SegmentManifest) -> None:
        if session.machine:
            write_now(msgspec.json.encode(manifest))
        else:
            note(f"{name_of(manifest)}: {manifest.rows:,} events")

    interval_seconds = min(settings.export_seconds, settings.segment_open_seconds)
    clock, tidied_day = SystemClock(), -1
    while True:
        segments, day = exporter.run(due_only=True, done=done).segments, clock.now_ms() // DAY_MS
        if segments or day != tidied_day:  # this process has the lock, so no other can do it
            compact.tidy(catalogue, settings, clock)
            tidied_day = day
        time.sleep(interval_seconds)


class _Progress:
    """Prints a progress line to standard error every second if that is a terminal."""

    def __init__(self, session: Session) -> None:
        self._enabled = sys.stderr.isatty() and not session.machine
        self._rows = 0
        self._clock = SystemClock()
        self._started_at = self._printed_at = self._clock.monotonic()

    def add(self, rows: int) -> None:
        self._rows += rows
        now = self._clock.monotonic()
        if self._enabled and now - self._printed_at >= 1:
            self._printed_at = now
            note(f"{self._rows:,} events, {self._rows / (now - self._started_at):,.0f}/s")


def _tell(session: Session, done: ExportRound, out: Path) -> None:
    answer: dict[str, Any] = {"out": str(out), **msgspec.to_builtins(done)}
    waiting = f"; {done.waiting:,} pending" if done.waiting else ""
    if done.segments:
        many = "segment" if done.segments == 1 else "segments"
        sentence = f"{done.rows:,} events in {done.segments} {many} under {out}{waiting}"
    else:
        sentence = f"nothing new under {out}{waiting}"
    session.answer(answer, sentence)

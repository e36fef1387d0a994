"""`agentlip export`: the log as closed segments, the tables as a snapshot, and are they whole?

Exit codes: 0 success, 1 error, 10 segment missing, 11 torn, 12 wrong hash, 13 unknown schema
version, 14 nothing in that range, 15 output not writable, 16 another export runs there,
17 another history, 18 a library is missing, 19 an event that can't be exported.
"""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app, write_now
from appliance.export import arrow_log_reader, compact, snapshot, table_writer, verify
from appliance.export.exporter import Exporter, Round, limits_of
from appliance.export.manifests import SNAPSHOT, Catalogue
from appliance.export.segment import DAY_MS, name_of
from appliance.export.settings import Format, JobsSettings
from appliance.export.source import open_log
from appliance.export.wire import Manifest
from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, discover
from appliance.kernel.errors import Invalid

app = plain_app(
    "Export: the log as closed segments, the tables as a snapshot.\n\n"
    "Exit codes: 0 success, 1 error, 10 segment missing, 11 torn, 12 wrong hash, 13 unknown"
    " schema version, 14 nothing in that range, 15 output not writable, 16 another export runs"
    " there, 17 another history, 18 a library is missing, 19 an event that can't be exported."
)

OutFlag = Annotated[
    Path | None, typer.Option("--out", help="Directory (default: jobs.export_dir).")
]
FormatFlag = Annotated[
    str | None, typer.Option("--format", help="parquet or jsonl (default: jobs.export_format).")
]


class _OurSection(msgspec.Struct, frozen=True):
    """Only [jobs] of agentlip.toml."""

    jobs: JobsSettings = JobsSettings()


@app.command("segments")
@common
def export_segments(
    session: Session,
    out: OutFlag = None,
    format_name: FormatFlag = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as events come; ends with Ctrl-C.")
    ] = False,
    due: Annotated[
        bool, typer.Option("--due", help="Leave a last piece that is neither full nor old.")
    ] = False,
) -> None:
    """Write what is new in the log as closed segments: agentlip export segments --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    catalogue = Catalogue(target)
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
    """Write the tables as they are now, for the audit: agentlip export snapshot --out /data/out"""
    datadir, settings = workspace_of(session)
    kind = _format(format_name, settings)
    target = out or out_dir(datadir, settings)
    lock = Catalogue(target, SNAPSHOT)
    with open_log(datadir) as log, lock.only_writer():
        path, manifest = snapshot.take(log, target, kind, settings.snapshots_kept, SystemClock())
    rows = sum(file.rows for file in manifest.files.values())
    answer = {"path": str(path), **msgspec.to_builtins(manifest)}
    session.answer(answer, f"{rows:,} rows as of event {manifest.as_of_event_id} in {path}")


@app.command("tidy")
@common
def tidy_segments(session: Session, out: OutFlag = None) -> None:
    """Write small neighbours as one, and remove what retention gives free."""
    datadir, settings = workspace_of(session)
    target = out or out_dir(datadir, settings)
    catalogue = Catalogue(target)
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
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What --out named.")],
) -> None:
    """Compare all manifests with what lies there, byte by byte: agentlip export verify /data/out"""
    verdict = verify.verify(directory)
    if verdict.problems and not session.machine:
        for problem in verdict.problems:
            note(f"{problem.file}: {problem.sentence}")
    verify.raise_first(verdict)
    session.answer(
        msgspec.to_builtins(verdict),
        f"{verdict.segments} segments and {verdict.snapshots} snapshots are whole:"
        f" {verdict.rows:,} rows, {verdict.bytes:,} bytes",
    )


def workspace_of(session: Session) -> tuple[DataDir, JobsSettings]:
    datadir = discover(Path.cwd()) if session.workspace is None else DataDir(session.workspace)
    if not datadir.database("hub").exists():
        raise Invalid(f"{datadir.workspace} is no workspace", hint="agentlip init")
    return datadir, config.load(_OurSection, datadir.settings_file, os.environ).jobs


def out_dir(datadir: DataDir, settings: JobsSettings) -> Path:
    return datadir.workspace / settings.export_dir


def _format(asked: str | None, settings: JobsSettings) -> Format:
    name = asked or settings.export_format
    if name == "parquet":
        table_writer.library()
        return "parquet"
    if name == "jsonl":
        return "jsonl"
    raise Invalid(f"there is no format {name}", hint="--format parquet or --format jsonl")


def _follow(
    session: Session, exporter: Exporter, catalogue: Catalogue, settings: JobsSettings
) -> None:
    def done(manifest: Manifest) -> None:
        if session.machine:
            write_now(msgspec.json.encode(manifest))
        else:
            note(f"{name_of(manifest)}: {manifest.rows:,} events")

    pause = min(settings.export_seconds, settings.segment_open_seconds)
    clock, tidied_day = SystemClock(), -1
    while True:
        segments, day = exporter.run(due_only=True, done=done).segments, clock.now_ms() // DAY_MS
        if segments or day != tidied_day:  # nobody else may while the lock is ours
            compact.tidy(catalogue, settings, clock)
            tidied_day = day
        time.sleep(pause)


class _Progress:
    """A line on standard error each second, for people only."""

    def __init__(self, session: Session) -> None:
        self._shown = sys.stderr.isatty() and not session.machine
        self._rows = 0
        self._clock = SystemClock()
        self._begun = self._told = self._clock.monotonic()

    def add(self, rows: int) -> None:
        self._rows += rows
        now = self._clock.monotonic()
        if self._shown and now - self._told >= 1:
            self._told = now
            note(f"{self._rows:,} events, {self._rows / (now - self._begun):,.0f}/s")


def _tell(session: Session, done: Round, out: Path) -> None:
    answer: dict[str, Any] = {"out": str(out), **msgspec.to_builtins(done)}
    waiting = f"; {done.waiting:,} wait for more" if done.waiting else ""
    if done.segments:
        many = "segment" if done.segments == 1 else "segments"
        sentence = f"{done.rows:,} events in {done.segments} {many} under {out}{waiting}"
    else:
        sentence = f"nothing new under {out}{waiting}"
    session.answer(answer, sentence)

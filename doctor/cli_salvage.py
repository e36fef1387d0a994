"""`agentlip doctor repair salvage` writes what can be read of a damaged store into a new file.

Exit codes: 0 everything is saved, 1 something is lost, 3 nothing could be done.
"""

import sqlite3
import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import STORES
from appliance.kernel.errors import Invalid, Unavailable
from doctor import report, run
from doctor.cli_options import (
    JsonFlag,
    WorkspaceFlag,
    datadir_of,
    is_json,
    option,
    report_failure,
    settings_of,
)
from doctor.salvage import SalvagedTable, SalvageReport
from doctor.salvage import salvage as salvage_store

EXIT_LOST = 1
_SILENT_SECONDS = 1.0
_CLEAR_LINE = "\r\x1b[K"


class SalvageFailed(Unavailable):
    code = "SALVAGE_FAILED"
    default_message = "the new file can't be written"
    default_hint = "name a file on a disk with enough space: --into FILE"


@report_failure
def salvage(
    ctx: typer.Context,
    store: Annotated[str, typer.Argument(help=f"Store: {', '.join(STORES)}.")],
    into: Annotated[Path, typer.Option("--into", help="The new file. It must not exist.")],
    workspace: WorkspaceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Write what can be read of a damaged store into a new file. The store is not changed."""
    if store not in STORES:
        raise Invalid(f"unknown store: {store}", hint=f"use one of: {', '.join(STORES)}")
    datadir = datadir_of(option(ctx, "workspace", workspace))
    settings, _ = settings_of(datadir)
    progress = _SalvageProgress()
    try:
        done = salvage_store(datadir, store, into, settings, SystemClock(), progress)
    except sqlite3.Error as error:
        raise SalvageFailed(f"the new file can't be written: {error}") from error
    finally:
        progress.end()
    if is_json(ctx, as_json):
        typer.echo(report.as_json(done))
    else:
        for line in lines_of(done):
            typer.echo(line)
    raise typer.Exit(run.EXIT_GOOD if done.saved_all else EXIT_LOST)


def lines_of(done: SalvageReport) -> list[str]:
    """The report for people."""
    width = max(len(name) for name in done.tables)
    lines = [f"Salvaged {done.store} into {done.into}", ""]
    lines.append(f"{'Table':{width}}  {'read':>9}  {'rebuilt':>9}  lost")
    for name, table in done.tables.items():
        lines.append(f"{name:{width}}  {table.read:9}  {table.rebuilt:9}  {_lost(table)}")
    lines.append("")
    without = done.without_events
    if without.count:
        named = ", ".join(without.named)
        more = "" if without.count == len(without.named) else ", …"
        lines.append(f"Kept, although their events are lost: {without.count} ({named}{more})")
    if done.without_parent:
        lines.append(f"Kept, although the row they refer to is lost: {done.without_parent}")
    if done.unknown_tables:
        lines.append(f"Not copied, because unknown: {', '.join(done.unknown_tables)}")
    lines += [f"Note: {note}" for note in done.notes]
    lines += [
        f"[{each.severity.value}] {each.check}: {each.subject}: {each.message}"
        for each in done.findings
    ]
    result = "Everything is saved." if done.saved_all else "Something is lost or needs attention."
    lines += [result, "", "To use the new file and keep the damaged one:"]
    return [*lines, *(f"  {command}" for command in done.commands)]


def _lost(table: SalvagedTable) -> str:
    if not table.lost:
        return "0" if table.complete else "unknown"
    ranges = ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in table.lost_ranges
    )
    listed = sum(last - first + 1 for first, last in table.lost_ranges)
    more = ", …" if listed < table.lost else ""
    at_least = "" if table.complete else "at least "
    return f"{at_least}{table.lost} (rows {ranges}{more})"


class _SalvageProgress:
    """Shows on a terminal what is read, once a second has passed."""

    def __init__(self) -> None:
        self._enabled = sys.stderr.isatty()
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def __call__(self, what: str, rows: int) -> None:
        if self._enabled and self._clock.monotonic() - self._began >= _SILENT_SECONDS:
            counted = f": {rows}" if rows else ""
            typer.echo(f"{_CLEAR_LINE}{what}{counted} …", err=True, nl=False)

    def end(self) -> None:
        if self._enabled:
            typer.echo(_CLEAR_LINE, err=True, nl=False)

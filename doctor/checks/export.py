"""Exported segments: whole, and not too far behind the logs."""

import os
import sqlite3
from collections.abc import Iterator
from datetime import datetime

import msgspec

from appliance.export import segment
from appliance.export.errors import ExportError
from appliance.export.logs import EVENTS, LOGS, ExportedLog
from appliance.export.manifests import RETENTION, SegmentDirectory, check
from appliance.export.settings import ExportSettings
from appliance.export.source import TABLE
from appliance.kernel import config
from appliance.kernel.clock import utc
from doctor.check import Check, Cost, Finding, Problem, Severity
from doctor.context import Context


class _OurSection(msgspec.Struct, frozen=True):
    """Only [export]; what else is wrong in the file is said by another check."""

    export: ExportSettings = ExportSettings()


def _settings(context: Context) -> ExportSettings:
    try:
        return config.load(_OurSection, context.datadir.settings_file, os.environ).export
    except config.BadSettings:
        return ExportSettings()


def _catalogue(context: Context, log: ExportedLog) -> SegmentDirectory:
    return SegmentDirectory(context.datadir.workspace / _settings(context).export_dir, log.kind)


def _lag(context: Context) -> Iterator[Finding]:
    """Checks the lag only if the appliance exports by itself, not if an operator starts exports."""
    settings = _settings(context)
    if not settings.export:
        return
    for log in LOGS.values():
        last = _catalogue(context, log).last_event_id()
        for _, connection in context.opened(log.store):
            waited = _waited_seconds(context, connection, log, last)
            if waited > settings.export_lag_warning_seconds:
                rows = "events" if log is EVENTS else f"rows of {log.kind}"
                yield Finding(
                    Severity.WARNING,
                    "export",
                    f"{rows} after {last} have waited {waited:.0f} s to be exported",
                    "agentlip export segments",
                    problem="behind",
                )


def _waited_seconds(
    context: Context, connection: sqlite3.Connection, log: ExportedLog, last: int
) -> float:
    """The age of the first row after row `last`; 0 without rows or without a log."""
    if connection.execute(TABLE, (log.table,)).fetchone() is None:
        return 0.0
    row = connection.execute(log.first_after, (last,)).fetchone()
    return 0.0 if row is None else _age_seconds(context, row[1] or "")


def _age_seconds(context: Context, text: str) -> float:
    try:
        written = datetime.fromisoformat(utc(text)).timestamp()
    except ValueError:
        return 0.0
    return context.clock.now_ms() / 1000 - written


def _segments(context: Context) -> Iterator[Finding]:
    """What can be seen without reading the segments through."""
    yield from _look(context, thorough=False)


def _content(context: Context) -> Iterator[Finding]:
    yield from _look(context, thorough=True)


def _look(context: Context, thorough: bool) -> Iterator[Finding]:
    for log in LOGS.values():
        yield from _look_at(_catalogue(context, log), thorough)


def _look_at(catalogue: SegmentDirectory, thorough: bool) -> Iterator[Finding]:
    hint = f"agentlip export verify {catalogue.folder.parent}"
    good = []
    for path in catalogue.paths():
        try:
            manifest = catalogue.read(path)
            good.append(manifest)
            digest = manifest.sha256 if thorough else None
            check(catalogue.data(manifest), manifest.bytes, digest)
        except ExportError as error:
            if path.exists():  # else it was replaced and removed meanwhile
                yield Finding(Severity.ERROR, path.name, error.message, hint, problem="broken")
        except OSError as error:
            yield Finding(
                Severity.ERROR,
                path.name,
                f"can't be read: {error.strerror}",
                hint,
                problem="unreadable",
            )
    try:
        begin = catalogue.begins_after() or 0
    except ExportError as error:
        yield Finding(Severity.ERROR, RETENTION, error.message, hint, problem="broken")
        return
    for sentence in segment.problems_of_chain(segment.live(good), begin):
        yield Finding(Severity.ERROR, "export", sentence, hint, problem="broken-chain")


_VERIFY = "`agentlip export verify DIR` lists what is wrong."
_UNREADABLE = Problem(
    "unreadable",
    "A file of the export can't be read.",
    "Check the owner and mode of the directory.",
)
_BROKEN_CHAIN = Problem("broken-chain", "Rows of a log are in no segment, or in two.", _VERIFY)
CHECKS = (
    Check(
        name="export.lag",
        inspects="rows of all logs are exported in time, where the appliance exports",
        find=_lag,
        reads="the newest segment's manifest of each log, and the row after it",
        problems=(
            Problem(
                "behind",
                "Readers of the segments miss the newest rows.",
                "Export now: `agentlip export segments`. The log has the reason why the appliance"
                " didn't.",
            ),
        ),
    ),
    Check(
        name="export.segments",
        inspects="exported segments are there, of the size they should have, and in a chain",
        find=_segments,
        reads="the manifests of all segments, and the sizes of their files",
        problems=(
            Problem(
                "broken",
                "A segment is missing, or differs from its manifest.",
                _VERIFY,
            ),
            _UNREADABLE,
            _BROKEN_CHAIN,
        ),
    ),
    Check(
        name="export.content",
        inspects="exported segments hold what their manifests say",
        cost=Cost.EXPENSIVE,
        includes="export.segments",
        find=_content,
        reads="the content of all segments",
        problems=(
            Problem(
                "broken",
                "A segment's content differs from its manifest.",
                _VERIFY,
            ),
            _UNREADABLE,
            _BROKEN_CHAIN,
        ),
    ),
)

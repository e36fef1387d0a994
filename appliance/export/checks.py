"""Checks that exported segments are undamaged and not too far behind the logs."""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.export import segment
from appliance.export.errors import ExportError
from appliance.export.logs import LOGS, ExportedLog
from appliance.export.manifests import RETENTION, SegmentDirectory, check
from appliance.export.settings import ExportSettings
from appliance.export.wire import SegmentManifest
from appliance.kernel import meta
from appliance.kernel.clock import utc

LAG_SECONDS_MAX = 3600.0  # the export is that far behind only if rounds fail


def _settings(context: Context) -> ExportSettings:
    return section(context.datadir.settings_file, "export", ExportSettings) or ExportSettings()


def catalogue_of(context: Context, log: ExportedLog) -> SegmentDirectory:
    """Return the log's segment directory."""
    return SegmentDirectory(context.datadir.workspace / _settings(context).export_dir, log.kind)


def segments(context: Context, log: ExportedLog) -> list[SegmentManifest]:
    """Return the manifests of the segments to read. Unreadable ones are left out."""
    catalogue = catalogue_of(context, log)
    manifests = []
    for path in catalogue.paths():
        with suppress(ExportError, OSError):
            manifests.append(catalogue.read(path))
    return segment.live(manifests)


def _lag(context: Context) -> Iterator[Finding]:
    """Check the lag, but only if the appliance exports automatically rather than on an
    operator's command."""
    settings = _settings(context)
    if not settings.export:
        return
    late: dict[str, float] = {}
    for log in LOGS.values():
        last = catalogue_of(context, log).last_event_id()
        for _, connection in context.opened(log.store):
            waited = _waited_seconds(context, connection, log, last)
            if waited > LAG_SECONDS_MAX:
                late[f"{log.kind} after {last}"] = waited
    if late:
        yield BEHIND.finding(
            "export",
            f"rows have waited {max(late.values()):.0f} s to be exported: {', '.join(late)}",
        )


def _waited_seconds(
    context: Context, connection: sqlite3.Connection, log: ExportedLog, last: int
) -> float:
    """Return the age of the first row after row `last`; 0 without rows or without a log."""
    if not meta.exists(connection, log.table):
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
    """Yield the findings that do not require reading whole segments."""
    yield from _look(context, thorough=False)


def _content(context: Context) -> Iterator[Finding]:
    yield from _look(context, thorough=True)


def _look(context: Context, thorough: bool) -> Iterator[Finding]:
    for log in LOGS.values():
        yield from _look_at(catalogue_of(context, log), thorough)


def _look_at(catalogue: SegmentDirectory, thorough: bool) -> Iterator[Finding]:
    folder = shlex.quote(str(catalogue.folder))
    hint = f"mv {folder} $(mktemp -d {folder}-broken-XXXXXX) && agentlip export segments"
    good = []
    for path in catalogue.paths():
        try:
            manifest = catalogue.read(path)
            good.append(manifest)
            digest = manifest.sha256 if thorough else None
            check(catalogue.data(manifest), manifest.bytes, digest)
        except ExportError as error:
            if path.exists():  # else replaced and removed meanwhile
                yield _BROKEN.finding(path.name, error.message, hint)
        except OSError as error:
            yield _BROKEN.finding(path.name, f"can't be read: {error.strerror}", hint)
    try:
        begin = catalogue.begins_after()
    except ExportError as error:
        yield _BROKEN.finding(RETENTION, error.message, hint)
        return
    for sentence in segment.problems_of_chain(segment.live(good), begin):
        yield _BROKEN_CHAIN.finding("export", sentence, hint)


_BROKEN_CHAIN = Problem("broken-chain", Severity.ERROR)
BEHIND = Problem("behind", hint="agentlip export segments")
_BROKEN = Problem("broken", Severity.ERROR)
CHECKS = (
    Check(
        name="export.lag",
        inspects="rows from all logs are exported in time, where the appliance exports",
        find=_lag,
        problems=(BEHIND,),
    ),
    Check(
        name="export.segments",
        inspects="exported segments exist, have the recorded size, and form a chain",
        find=_segments,
        problems=(_BROKEN, _BROKEN_CHAIN),
    ),
    Check(
        name="export.content", inspects="exported segments match their manifests",
        cost=Cost.EXPENSIVE, includes="export.segments", find=_content,
        problems=(_BROKEN, _BROKEN_CHAIN),
    ),
)  # fmt: skip

"""Exported segments: whole, and not too far behind the logs."""

import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from appliance.backup.remedies import copy_hint
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.export import segment, table_writer
from appliance.export.errors import ExportError
from appliance.export.logs import EVENTS, INBOX, LOGS, ExportedLog
from appliance.export.manifests import RETENTION, SegmentDirectory, check
from appliance.export.settings import ExportSettings
from appliance.export.wire import SegmentManifest
from appliance.inbox.settings import InboxSettings
from appliance.kernel import meta
from appliance.kernel.clock import iso, utc
from appliance.workspace import manifest as workspace_manifest

LAG_SECONDS_MAX = 3600.0  # the export is that far behind only if its rounds fail


def _settings(context: Context) -> ExportSettings:
    return section(context.datadir.settings_file, "export", ExportSettings) or ExportSettings()


def _catalogue(context: Context, log: ExportedLog) -> SegmentDirectory:
    return SegmentDirectory(context.datadir.workspace / _settings(context).export_dir, log.kind)


def segments(context: Context, log: ExportedLog) -> list[SegmentManifest]:
    """The manifests of the segments to read, as far as they can be read."""
    catalogue = _catalogue(context, log)
    manifests = []
    for path in catalogue.paths():
        with suppress(ExportError, OSError):
            manifests.append(catalogue.read(path))
    return segment.live(manifests)


def _lag(context: Context) -> Iterator[Finding]:
    """Checks the lag only if the appliance exports by itself, not if an operator starts exports."""
    settings = _settings(context)
    if not settings.export:
        return
    late: dict[str, float] = {}
    for log in LOGS.values():
        last = _catalogue(context, log).last_event_id()
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
    """The age of the first row after row `last`; 0 without rows or without a log."""
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
    """What can be seen without reading the segments through."""
    yield from _look(context, thorough=False)


def _content(context: Context) -> Iterator[Finding]:
    yield from _look(context, thorough=True)


def _agrees(context: Context) -> Iterator[Finding]:
    """Compares segments of the current epoch: a restore may discard what older ones have."""
    epoch = next((meta.read(auth, "epoch") for _, auth in context.opened("auth")), None)
    for log in (EVENTS, INBOX):
        for manifest in segments(context, log) if epoch else ():
            if manifest.epoch != epoch:
                continue
            differing = forged(context, log, manifest)
            if differing:
                yield DIFFERS.finding(
                    log.kind,
                    f"{len(differing)} rows differ from the segment {manifest.file}, which has them"
                    f" as they were exported; the first is row {differing[0]}",
                    copy_hint(context.datadir, log.store),
                )


def forged(context: Context, log: ExportedLog, manifest: SegmentManifest) -> list[int]:
    """The numbers of the rows that the store has changed since they were exported; and of the
    inbox, those that it deleted after its oldest row, or before they were old. Empty if the segment
    itself is not whole: another check reports that."""
    path = _catalogue(context, log).data(manifest)
    first, last = manifest.first_event_id, manifest.last_event_id
    table, column = log.table, log.key
    names = [
        stored.name for stored in log.stored_columns if not stored.type.startswith("timestamp")
    ]
    for _, connection in context.opened(log.store):
        if not meta.exists(connection, log.table):
            continue
        (oldest,) = connection.execute(f"SELECT min({column}) FROM {table}").fetchone()
        if oldest is None and _is_kept(context, log, manifest):
            oldest = 0
        rows = connection.execute(log.rows_after, (first - 1, last - first + 1))
        stored = {row[0]: dict(zip(log.stored, row, strict=True)) for row in rows}
        try:
            check(path, manifest.bytes, manifest.sha256)
            return [
                row["event_id"]
                for row in table_writer.rows(path, manifest.format)
                if _differs(row, stored.get(row["event_id"]), names, None if log.kept else oldest)
            ]
        except (ExportError, OSError):
            return []
    return []


def _is_kept(context: Context, log: ExportedLog, manifest: SegmentManifest) -> bool:
    """Whether no row of the segment is so old that the inbox has removed it, nor was its loss
    accepted."""
    if log.store in workspace_manifest.read(context.datadir).lost:
        return False
    today = date.fromisoformat(iso(context.clock.now_ms())[:10])
    days = (today - date.fromisoformat(manifest.date)).days
    inbox = section(context.datadir.settings_file, "inbox", InboxSettings) or InboxSettings()
    return days + 1 < inbox.retention_days


def _differs(
    row: Mapping[str, Any],
    there: Mapping[str, Any] | None,
    names: Iterable[str],
    oldest: int | None,
) -> bool:
    """`oldest`: a row that is missing before it was removed for its age. None: other checks report
    missing rows."""
    if there is None:
        return oldest is not None and row["event_id"] > oldest
    return any(row[name] != there[name] for name in names)


def _look(context: Context, thorough: bool) -> Iterator[Finding]:
    for log in LOGS.values():
        yield from _look_at(_catalogue(context, log), thorough)


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
            if path.exists():  # else it was replaced and removed meanwhile
                yield _BROKEN.finding(path.name, error.message, hint)
        except OSError as error:
            yield _UNREADABLE.finding(path.name, f"can't be read: {error.strerror}", hint)
    try:
        begin = catalogue.begins_after() or 0
    except ExportError as error:
        yield _BROKEN.finding(RETENTION, error.message, hint)
        return
    for sentence in segment.problems_of_chain(segment.live(good), begin):
        yield _BROKEN_CHAIN.finding("export", sentence, hint)


_VERIFY = (
    "The hint keeps the segments aside, and exports what the store has again. `agentlip export"
    " verify DIR` lists what is wrong."
)
_UNREADABLE = Problem(
    "unreadable",
    "A file of the export can't be read.",
    "Check the owner and mode of the directory.",
    Severity.ERROR,
)
_BROKEN_CHAIN = Problem(
    "broken-chain", "Rows of a log are in no segment, or in two.", _VERIFY, Severity.ERROR
)
BEHIND = Problem(
    "behind",
    "Readers of the segments miss the newest rows.",
    "Export now: `agentlip export segments`. The log has the reason why the appliance didn't.",
    hint="agentlip export segments",
)
_BROKEN = Problem(
    "broken",
    "A segment is missing, or differs from its manifest.",
    _VERIFY,
    Severity.ERROR,
)
DIFFERS = Problem(
    "differs",
    "Another program changed or deleted rows after they were exported, perhaps together with their"
    " events. The segment has the originals.",
    "Keep the segments: they are the trace. The hint restores the verified backup. No repair"
    " changes messages before.",
    Severity.ERROR,
)
CHECKS = (
    Check(
        name="export.lag",
        inspects="rows of all logs are exported in time, where the appliance exports",
        find=_lag,
        reads="the newest segment's manifest of each log, and the row after it",
        problems=(BEHIND,),
    ),
    Check(
        name="export.segments",
        inspects="exported segments are there, of the size they should have, and in a chain",
        find=_segments,
        reads="the manifests of all segments, and the sizes of their files",
        problems=(_BROKEN, _UNREADABLE, _BROKEN_CHAIN),
    ),
    Check(
        name="export.agrees",
        inspects="events and received messages are as they were exported",
        cost=Cost.EXPENSIVE,
        find=_agrees,
        reads="the segments of events and of the inbox since the last restore, and their rows in"
        " the stores; without times. Parquet is read where pyarrow is installed",
        problems=(DIFFERS,),
    ),
    Check(
        name="export.content",
        inspects="exported segments hold what their manifests say",
        cost=Cost.EXPENSIVE,
        includes="export.segments",
        find=_content,
        reads="the content of all segments",
        problems=(_BROKEN, _UNREADABLE, _BROKEN_CHAIN),
    ),
)

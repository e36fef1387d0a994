"""Checks that stored rows still equal their exported copies."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from appliance.backup.remedies import copy_hint
from appliance.checks.cause import Cause
from appliance.checks.check import Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.export import table_writer
from appliance.export.checks import catalogue_of, segments
from appliance.export.errors import ExportError
from appliance.export.logs import EVENTS, INBOX, ExportedLog
from appliance.export.manifests import check
from appliance.export.wire import SegmentManifest
from appliance.inbox.settings import InboxSettings
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.workspace import manifest as workspace_manifest


def _agrees(context: Context) -> Iterator[Finding]:
    """Compare the current epoch's segments. A restore may have discarded older rows."""
    epoch = next((meta.read(auth, "epoch") for _, auth in context.opened("auth")), None)
    for log in (EVENTS, INBOX):
        for manifest in segments(context, log) if epoch else ():
            if manifest.epoch != epoch:
                continue
            differing = find_forged(context, log, manifest)
            if differing:
                yield DIFFERS.finding(
                    log.kind,
                    f"{len(differing)} rows differ from the exported rows in segment "
                    f"{manifest.file}; the first is row {differing[0]}",
                    copy_hint(context.datadir, log.store),
                )


def find_forged(context: Context, log: ExportedLog, manifest: SegmentManifest) -> list[int]:
    """Return the numbers of rows that changed after their export. Inbox rows that were deleted too
    early count as changed. Empty if the segment is damaged, which another check reports."""
    path = catalogue_of(context, log).data(manifest)
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
    """Return whether every row in the segment should still exist: the inbox has not pruned any by
    age, and nobody accepted a loss."""
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
    """Return whether a stored row differs from the exported one. Rows below `oldest` may be pruned;
    None: other checks report missing rows."""
    if there is None:
        return oldest is not None and row["event_id"] > oldest
    return any(row[name] != there[name] for name in names)


DIFFERS = Problem("differs", Severity.ERROR)
CAUSES = (
    Cause("events.scope:no-scope", ("export.agrees:differs",)),
    Cause("export.agrees:differs", ("events.rows*:differs",)),
)
CHECKS = (
    Check(
        name="export.agrees", inspects="events and received messages match the export",
        cost=Cost.EXPENSIVE, find=_agrees, problems=(DIFFERS,),
    ),
)  # fmt: skip

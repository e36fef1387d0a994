"""Writes the tables as of one event into files next to the segments, for the audit.

    <out>/snapshot/<epoch>-<newest event>/{messages,topics,…}.parquet + manifest.json

All tables are read in one transaction. The folder is renamed after all content is synced, so
readers never see an incomplete snapshot.
"""

import secrets
import shutil
from pathlib import Path

from appliance.export import schema, table_writer
from appliance.export.manifests import (
    SNAPSHOT,
    SNAPSHOT_MANIFEST,
    TEMPORARY,
    write_manifest,
    writing,
)
from appliance.export.settings import Format
from appliance.export.source import StoredLog
from appliance.export.wire import SCHEMA_VERSION, SnapshotFile, SnapshotManifest
from appliance.kernel.clock import Clock, iso
from appliance.kernel.whole_file import sync_directory


def write(
    log: StoredLog, out: Path, format_name: Format, kept: int, clock: Clock
) -> tuple[Path, SnapshotManifest]:
    """Write a snapshot. Returns its path and manifest. An equal state reuses the name."""
    parent = out.absolute() / SNAPSHOT
    with writing():
        parent.mkdir(parents=True, exist_ok=True)
        _prune_temporary(parent)
        folder = _temporary(parent)
        folder.mkdir()
    try:
        with log.moment():
            epoch, newest = log.epoch, log.newest()
            tables = schema.snapshot()
            files = {table.name: _table(log, table, folder, format_name) for table in tables}
        manifest = SnapshotManifest(
            schema_version=SCHEMA_VERSION,
            kind=SNAPSHOT,
            epoch=epoch,
            as_of_event_id=newest,
            format=format_name,
            created_at=iso(clock.now_ms()),
            workspace_id=log.workspace_id,
            files=files,
        )
        target = parent / f"{epoch}-{newest:020d}"
        with writing():
            write_manifest(folder / SNAPSHOT_MANIFEST, manifest)
            sync_directory(folder)
            if target.exists():  # an equal state, perhaps in another format
                target.rename(_temporary(parent))
            folder.rename(target)
            sync_directory(parent)
            _prune(parent, kept)
    finally:
        _prune_temporary(parent)
    return target, manifest


def _table(
    log: StoredLog, table: schema.ExportTable, folder: Path, format_name: Format
) -> SnapshotFile:
    name = f"{table.name}.{format_name}"
    file = table_writer.create(folder / name, format_name, table.columns)
    for rows in log.rows(table.name, [column.name for column in table.columns]):
        file.add(list(zip(*rows, strict=True)))
    written = file.finish()
    return SnapshotFile(name, written.rows, written.bytes, written.sha256)


def _prune(parent: Path, kept: int) -> None:
    """Rename all but the newest `kept` snapshots, so readers ignore the old ones."""
    manifests = sorted(
        parent.glob(f"[!.]*/{SNAPSHOT_MANIFEST}"), key=lambda path: path.stat().st_mtime_ns
    )
    for path in manifests[:-kept] if kept else []:
        path.parent.rename(_temporary(parent))


def _prune_temporary(parent: Path) -> None:
    """Remove temporary files, also from killed snapshots. Only one process at a time writes
    snapshots."""
    for left in parent.glob(f"{TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)


def _temporary(parent: Path) -> Path:
    return parent / f"{TEMPORARY}{secrets.token_hex(8)}"

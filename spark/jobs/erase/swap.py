"""Replaces segments by their erased files so that a kill at any time leaves nothing half-done.

    <export>/events/.erase-plan.json        what replaces what; written when all files are there
    <export>/events/date=…/.erase-segment-….parquet  a new file; then it has the segment's name

With a plan, the next run finishes the replacement. Without one, new files are removed: nothing was
replaced yet. Between the rename of a segment and that of its manifest, readers get a typed error
about its hash.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from spark import segments
from spark.errors import OutputBusy, SegmentTorn
from spark.files import locked, sync_folder, writable, write_whole
from spark.jobs.erase.rewrite import TEMPORARY, temporary

PLAN = f"{TEMPORARY}plan.json"


class SegmentChange(NamedTuple):
    """A segment to replace; `file` and `manifest` are below the folder of the log."""

    file: str
    manifest: str
    rows: int
    changed: int
    before: str
    after: str
    bytes: int
    untouched: str
    envelopes: str


class ErasePlan(NamedTuple):
    """snapshots: the names of snapshots to remove"""

    order: str
    changes: tuple[SegmentChange, ...]
    snapshots: tuple[str, ...]


def only_writer(folder: Path) -> AbstractContextManager[None]:
    """Lock the directory of segments, as the exporter does."""
    busy = OutputBusy(
        f"an export is writing to {folder.parent}", "run it again when the export is done"
    )
    return locked(folder, busy)


def pending(folder: Path) -> ErasePlan | None:
    """The plan of an erasure that did not finish."""
    try:
        fields: dict[str, Any] = json.loads((folder / PLAN).read_bytes())
        changes = tuple(SegmentChange(**change) for change in fields["changes"])
        return ErasePlan(str(fields["order"]), changes, tuple(fields["snapshots"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        raise SegmentTorn(
            f"{folder / PLAN} cannot be read", "remove it and run the erasure again"
        ) from None


def begin(folder: Path, plan: ErasePlan) -> None:
    """Record the plan. The new files are complete and synced already."""
    fields = {
        "order": plan.order,
        "changes": [change._asdict() for change in plan.changes],
        "snapshots": plan.snapshots,
    }
    with writable(folder):
        write_whole(folder / PLAN, json.dumps(fields, indent=1), TEMPORARY)


def sweep(folder: Path) -> None:
    """Remove the new files of a run that was killed before it had a plan."""
    with writable(folder):
        for file in folder.rglob(f"{TEMPORARY}*"):
            file.unlink()


def finish(folder: Path, plan: ErasePlan, at: str) -> None:
    """Give all new files the names of their segments; again after a kill, with the same end."""
    for change in plan.changes:
        target, manifest = folder / change.file, folder / change.manifest
        with writable(target.parent):
            _finish_one(target, manifest, change, plan.order, at)


def _finish_one(target: Path, manifest: Path, change: SegmentChange, order: str, at: str) -> None:
    """A segment that was removed or written again meanwhile stays as it is."""
    new = temporary(target)
    try:
        fields: dict[str, Any] = json.loads(manifest.read_bytes())
    except FileNotFoundError:
        fields = {}
    if fields.get("sha256") != change.before:
        new.unlink(missing_ok=True)
        return
    if new.exists():
        segments.verify_file(new, change.bytes, change.after)
        new.replace(target)
        sync_folder(target.parent)
    note = {"order_sha256": order, "rows": change.changed, "at": at}
    fields |= {"bytes": change.bytes, "sha256": change.after, "erased": note}
    write_whole(manifest, json.dumps(fields, indent=1) + "\n", TEMPORARY)


def end(folder: Path) -> None:
    with writable(folder):
        (folder / PLAN).unlink(missing_ok=True)
        sync_folder(folder)

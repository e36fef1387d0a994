"""Replaces segments by their erased files so that a kill at any time leaves nothing half-done.

    <export>/events/.erase-plan.json        what replaces what; written when all files are there
    <export>/events/date=…/.erase-segment-….parquet  a new file; then it has the segment's name

With a plan, the next run finishes the replacement. Without one, new files are removed: nothing was
replaced yet. Between the new segment and its manifest, readers get a typed error about its size or
hash.
"""

import json
from typing import Any, NamedTuple

from spark import segments
from spark.errors import OutputBusy, SegmentTorn
from spark.files import sync_folder, writable, write_whole
from spark.jobs.erase.rewrite import TEMPORARY, temporary
from spark.locations import Location

PLAN = f"{TEMPORARY}plan.json"


class SegmentChange(NamedTuple):
    """A segment to replace. file: below the log's folder; before, after: SHA-256."""

    file: str
    rows: int
    changed: int
    bytes: int
    before: str
    after: str


class ErasePlan(NamedTuple):
    """The changes that an order makes. order: its SHA-256; snapshots: the names of snapshots to
    remove."""

    order: str
    changes: tuple[SegmentChange, ...]
    snapshots: tuple[str, ...]

    def after(self, former: "ErasePlan | None") -> "ErasePlan":
        """Return this plan with a killed run's changes added."""
        if former is None:
            return self
        changes = {change.file: change for change in (*former.changes, *self.changes)}
        names = {*former.snapshots, *self.snapshots}
        return ErasePlan(self.order, tuple(changes.values()), tuple(sorted(names)))


def recover(folder: Location, order: str, at: str) -> ErasePlan | None:
    """Finish what a killed run with this order planned, or remove its files if it had no plan.
    Raises OutputBusy for a plan with another order."""
    former = _pending(folder)
    if former is None:
        with writable(folder):
            for file in folder.rglob(f"{TEMPORARY}*"):
                file.unlink()
    elif former.order != order:
        raise OutputBusy(
            f"another erasure of {folder.parent} did not finish",
            f"run it again with its order, which has the SHA-256 {former.order}",
        )
    else:
        finish(folder, former, at)
    return former


def _pending(folder: Location) -> ErasePlan | None:
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


def begin(folder: Location, plan: ErasePlan) -> None:
    """Record the plan. The new files are complete and synced already."""
    fields = plan._asdict() | {"changes": [change._asdict() for change in plan.changes]}
    with writable(folder):
        write_whole(folder / PLAN, json.dumps(fields, indent=1), TEMPORARY)


def finish(folder: Location, plan: ErasePlan, at: str) -> None:
    """Rename all new files to their segments' names. Running again after a kill has the same
    result."""
    for change in plan.changes:
        with writable(folder):
            _finish_one(folder / change.file, change, plan.order, at)


def _finish_one(target: Location, change: SegmentChange, order: str, at: str) -> None:
    """Replace one segment. A segment that was removed or written again meanwhile stays as it is."""
    new, manifest = temporary(target), target.with_name(f"{target.stem}{segments.MANIFEST}")
    try:
        fields: dict[str, Any] = json.loads(manifest.read_bytes())
    except FileNotFoundError:
        fields = {}
    if fields.get("sha256") != change.before:
        new.unlink(missing_ok=True)
        return
    is_replaced = not new.exists()
    segments.verify_file(target if is_replaced else new, change.bytes, change.after)
    if not is_replaced:
        new.replace(target)
        sync_folder(target.parent)
    note = {"order_sha256": order, "rows": change.changed, "at": at}
    fields |= {"bytes": change.bytes, "sha256": change.after, "erased": note}
    write_whole(manifest, json.dumps(fields, indent=1) + "\n", TEMPORARY)


def end(folder: Location) -> None:
    with writable(folder):
        (folder / PLAN).unlink(missing_ok=True)
        sync_folder(folder)

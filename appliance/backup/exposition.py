"""Shows the backups and their uploads as metrics."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from appliance.backup import metrics
from appliance.backup.catalogue import BackupFacts
from appliance.backup.settings import TargetSettings
from appliance.backup.transfer import UploadState, read_state


def show(backups: Sequence[BackupFacts], newest: BackupFacts | None, now_ms: int) -> None:
    """`backups` oldest first. Without a backup, all times and sizes are 0."""
    metrics.backups.set(len(backups))
    row = None if newest is None else newest.row
    metrics.last_success.set(0 if newest is None else newest.cut_ms / 1000)
    metrics.age.set(0 if newest is None else max(0.0, (now_ms - newest.cut_ms) / 1000))
    metrics.stored_bytes.set(0 if row is None else row.stored_bytes)
    metrics.seconds.set(0 if row is None else row.seconds)
    metrics.pause.set(0 if row is None else row.pause_ms / 1000)
    checked = next(
        (fact.row.verification for fact in reversed(backups) if fact.row.verification is not None),
        None,
    )
    proven = [fact.row.verification for fact in backups if fact.result in ("good", "bad")]
    times = [datetime.fromisoformat(fact.checked_at).timestamp() for fact in proven if fact]
    metrics.verified.set(max(times, default=0))
    for result in metrics.RESULTS:
        is_it = checked is not None and checked.result == result
        metrics.verification.labels(result).set(is_it)


def read_uploads(
    root: Path, backups: Sequence[BackupFacts], targets: Sequence[TargetSettings]
) -> list[tuple[str, bool, float]]:
    """For each target its name, whether the last upload failed, and the cut of the newest backup
    that is there, in seconds, or 0. Reads one small file per backup, newest first, until one is
    there."""
    return [(target.name, *_uploads(root, backups, target)) for target in targets]


def show_uploads(uploads: Sequence[tuple[str, bool, float]]) -> None:
    for name, failed, cut in uploads:
        metrics.targets.labels(name).set(failed)
        metrics.uploaded.labels(name).set(cut)


def _uploads(
    root: Path, backups: Sequence[BackupFacts], target: TargetSettings
) -> tuple[bool, float]:
    last: UploadState | None = None
    for facts in reversed(backups):
        state = read_state(root / facts.name, target)
        last = last or state
        if state is not None and state.status == "complete":
            return _failed(last), facts.cut_ms / 1000
    return _failed(last), 0.0


def _failed(state: UploadState | None) -> bool:
    return state is not None and state.status == "failed"

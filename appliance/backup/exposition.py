"""Shows the backups and their uploads as metrics."""

from collections.abc import Sequence
from datetime import datetime

from appliance.backup import metrics
from appliance.backup.backup_directory import ListedBackup
from appliance.backup.settings import TargetSettings
from appliance.backup.transfer import read_state


def show(backups: Sequence[ListedBackup], newest: ListedBackup | None, now_ms: int) -> None:
    """`backups` oldest first. Without a backup, all times and sizes are 0."""
    manifest = None if newest is None else newest.manifest
    metrics.backups.set(sum(listed.manifest is not None for listed in backups))
    metrics.last_success.set(0 if manifest is None else manifest.cut_ms / 1000)
    metrics.age.set(0 if manifest is None else max(0.0, (now_ms - manifest.cut_ms) / 1000))
    metrics.stored_bytes.set(0 if manifest is None else manifest.stored_bytes)
    metrics.seconds.set(0 if manifest is None else manifest.seconds)
    metrics.pause.set(0 if manifest is None else manifest.pause_ms / 1000)
    checked = [listed.verification for listed in backups if listed.verification is not None]
    times = [
        datetime.fromisoformat(verification.checked_at).timestamp()
        for verification in checked
        if verification.result != "inconclusive"
    ]
    metrics.verified.set(max(times, default=0))
    for result in metrics.RESULTS:
        metrics.verification.labels(result).set(checked[-1:] != [] and checked[-1].result == result)


def read_uploads(
    backups: Sequence[ListedBackup], targets: Sequence[TargetSettings]
) -> list[tuple[str, bool, float]]:
    """For each target its name, whether the last upload failed, and the cut of the newest backup
    that is there, in seconds, or 0."""
    uploads = []
    for target in targets:
        states = [(listed, read_state(listed.path, target)) for listed in backups]
        tried = [(listed, state) for listed, state in states if state is not None]
        cuts = [listed.cut_ms / 1000 for listed, state in tried if state.status == "complete"]
        failed = bool(tried) and tried[-1][1].status == "failed"
        uploads.append((target.name, failed, cuts[-1] if cuts else 0.0))
    return uploads


def show_uploads(uploads: Sequence[tuple[str, bool, float]]) -> None:
    for name, failed, cut in uploads:
        metrics.targets.labels(name).set(failed)
        metrics.uploaded.labels(name).set(cut)

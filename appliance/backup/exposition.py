"""Shows the backups and their uploads as metrics."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from appliance.backup import metrics
from appliance.backup.backup_directory import ListedBackup
from appliance.backup.manifest import moment_ms
from appliance.backup.upload_state import UploadState


def set_gauges(backups: Sequence[ListedBackup], newest: ListedBackup | None, now_ms: int) -> None:
    """Set the metrics; `backups` are oldest first. Without a backup, all times and sizes are 0."""
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


def set_upload_gauges(states: Mapping[str, UploadState]) -> None:
    """Show the last upload to each target."""
    for name, state in states.items():
        metrics.targets.labels(name).set(bool(state.problem))
        metrics.uploaded.labels(name).set(moment_ms("", state.newest) / 1000 if state.newest else 0)

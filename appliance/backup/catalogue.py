"""The backups of a workspace as a long-running process sees them. A manifest is read once.

Backups never change, so only new ones and those that could not be read are read again.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup import wire
from appliance.backup.backup_directory import BackupDirectory, ListedBackup
from appliance.backup.manifest import moment_ms
from appliance.backup.retention import FUTURE_MS, SAFETY


class BackupFacts(NamedTuple):
    """What the schedule and the metrics need of a backup. Times are in ms, UTC."""

    name: str
    cut_ms: int
    row: wire.Backup

    @property
    def result(self) -> str | None:
        """good, bad or inconclusive; None if it was never verified."""
        return None if self.row.verification is None else self.row.verification.result

    @property
    def seconds(self) -> float:
        """How long making the backup and its last check took."""
        verification = self.row.verification
        return self.row.seconds + (0.0 if verification is None else verification.seconds)


class BackupCatalogue:
    def __init__(self, backups: BackupDirectory) -> None:
        self._backups = backups
        self._read: dict[str, wire.Backup] = {}
        self._signature: tuple[int, int] | None = None
        self.facts: list[BackupFacts] = []
        """The readable backups at the last `refresh`, oldest first."""

    def refresh(self) -> list[BackupFacts]:
        """Updates `facts`. Reads files only if something changed."""
        signature = self._now()
        if signature != self._signature:
            self.facts = [
                BackupFacts(row.name, moment_ms(row.cut_at, row.name), row)
                for row in map(self.row, self._backups.names())
                if not row.problem
            ]
            self._signature = signature
            kept = {facts.name for facts in self.facts}
            self._read = {name: row for name, row in list(self._read.items()) if name in kept}
        return self.facts

    def forget(self) -> None:
        """Look again at the next `refresh`, because a result was written."""
        self._signature = None

    def row(self, name: str) -> wire.Backup:
        """The row of a list. One that can't be read has a `problem`."""
        row = self._read.get(name)
        if row is None:
            row = row_of(self._backups.describe(name))
            if not row.problem:
                self._read[name] = row
        return msgspec.structs.replace(row, verification=self._backups.verification(name))

    def newest(self, now_ms: int) -> BackupFacts | None:
        """The newest backup by its cut, without those from the future and safety copies: the
        content of one was replaced, or it is of an attempt to migrate, and nobody has verified
        it."""
        present = (
            facts
            for facts in self.facts
            if facts.cut_ms <= now_ms + FUTURE_MS and facts.row.reason not in SAFETY
        )
        return max(present, key=lambda facts: facts.cut_ms, default=None)

    def _now(self) -> tuple[int, int]:
        """Changes when a backup comes or goes, and when the newest one gets a verification."""
        root = self._backups.root
        newest = root / self.facts[-1].name if self.facts else root
        return (_changed(root), _changed(newest))


def row_of(listed: ListedBackup) -> wire.Backup:
    """Without the verification, which may change."""
    manifest = listed.manifest
    if manifest is None:
        return wire.Backup(name=listed.name, problem=listed.problem or "it can't be read")
    return wire.Backup(
        name=manifest.name,
        reason=manifest.reason,
        created_at=manifest.created_at,
        cut_at=manifest.cut_at,
        seconds=manifest.seconds,
        pause_ms=manifest.pause_ms,
        bytes=manifest.bytes,
        stored_bytes=manifest.stored_bytes,
        files=len(manifest.files),
        encrypted=manifest.encrypted,
        app_version=manifest.app_version,
        epoch=manifest.epoch,
        last_event_id=manifest.last_event_id,
    )


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0

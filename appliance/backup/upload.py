"""Copies backups to one target. The local backup stays; an interrupted upload continues.

A backup is present at a target when its manifest is there, which is written last.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import PlainRefused, TargetFailed
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.settings import TargetSettings
from appliance.backup.stored import pieces
from appliance.backup.target import BackupTarget
from appliance.backup.unpack import TellFile
from appliance.kernel.clock import Clock


class Upload:
    """Copies backups to one target, for `seconds_max` in total."""

    def __init__(
        self,
        backups: BackupDirectory,
        target_settings: TargetSettings,
        target: BackupTarget,
        clock: Clock,
        seconds_max: float,
        tell: TellFile | None = None,
    ) -> None:
        self._backups = backups
        self._allow_plain = target_settings.allow_plain
        self._target = target
        self._clock = clock
        self._ends = clock.monotonic() + seconds_max
        self._tell = tell or (lambda *_: None)

    def run(self, name: str) -> bool:
        """False if all of the backup was there.

        Raises PlainRefused, BackupDamaged, BackupNotFound, TargetRefused or TargetFailed.
        """
        manifest, path = self._backups.read(name), self._backups.path(name)
        if not manifest.encrypted and not self._allow_plain:
            raise PlainRefused(
                f"{name} is not encrypted and contains secrets; target {self._target.name}"
                " takes only encrypted backups"
            )
        listed, last = self._target.list(name), f"{name}/{manifests.FILE}"
        missing, text = _find_missing(manifest, listed), manifests.encode(manifest)
        if not missing and listed.get(last) == len(text):
            return False
        if last in listed:  # the backup does not count meanwhile
            self._target.remove(last)
        self._send(path, manifest, missing)
        for file in _find_missing(manifest, self._target.list(name)):
            raise TargetFailed(
                f"target {self._target.name} accepted {file.name} of {name},"
                " but does not have it as it was sent"
            )
        self._target.write(last, [text])
        return True

    def _send(self, path: Path, manifest: BackupManifest, missing: list[BackupFile]) -> None:
        """Sends the files that are not there yet."""
        total = manifest.stored_bytes
        done = total - sum(file.stored_bytes for file in missing)
        what = f"{manifest.name} to {self._target.name}"

        def content(file: BackupFile) -> Iterator[bytes]:
            nonlocal done
            for piece in pieces(path, file):
                done += len(piece)
                self._tell(what, done, total)
                yield piece

        for file in missing:
            if self._clock.monotonic() >= self._ends:
                raise TargetFailed("the time for copying is over; the next upload continues")
            self._target.write(f"{manifest.name}/{file.name}", content(file))


def _find_missing(manifest: BackupManifest, listed: Mapping[str, int]) -> list[BackupFile]:
    """The files that a target does not have. Each is written completely or not at all, and the name
    of a backup is used once, so that one of the same size is the same."""
    return [
        file
        for file in manifest.files
        if listed.get(f"{manifest.name}/{file.name}") != file.stored_bytes
    ]

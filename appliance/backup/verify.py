"""Checks a backup by restoring into a scratch directory and serving the copy read-only.

    hashes ─▶ unpack ─▶ stores and their rows ─▶ migrate, if older ─▶ serve ─▶ compare ─▶ checks

The first step that finds a problem is the last. The scratch directory is removed at the end; if the
process is killed, the next process that changes the backups removes the directory.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance import __version__
from appliance.backup import scratch_served, scratch_stores
from appliance.backup.backup_directory import BackupWorkspace, check_space
from appliance.backup.deadline import Deadline, Inconclusive
from appliance.backup.errors import BackupDamaged, BackupNotWritable, KeyRefused, VersionRefused
from appliance.backup.keys import Identities
from appliance.backup.manifest import BackupManifest, Verification
from appliance.backup.scratch_server import ScratchServer, ServerFailed
from appliance.backup.stored import pieces
from appliance.backup.unpack import FileProgress, no_progress, unpack
from appliance.checks.backup_rules import rules_of
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.store_errors import StoreFull, free_bytes
from appliance.workspace.datadir import DataDir, DataDirNotWritable

PROBLEMS_MAX = 20
RunChecks = Callable[[DataDir, Mapping[str, str], float], list[str]]
"""Runs the doctor's checks for some stores, each with a group, within some seconds, and returns
the errors."""


class Verifier:
    """Verifies backups one after the other. Call inside `work.backups.only_writer()`."""

    def __init__(
        self, work: BackupWorkspace, run_checks: RunChecks, progress: FileProgress = no_progress
    ) -> None:
        _, self._settings, self._backups, self._clock = work
        self._run_checks = run_checks
        self._progress = progress

    def verify(self, name: str, identities: Identities | None) -> Verification:
        """Record the result beside the backup; an inconclusive result only if no result exists
        yet.

        Raises BackupNotFound, and BackupNotWritable if the result can't be recorded.
        """
        path = self._backups.path(name)
        began = self._clock.monotonic()
        self._deadline = Deadline(self._clock, self._settings.seconds_max)
        inconclusive = False
        before = self._backups.verification(name)
        try:
            problems = self._problems(name, path, identities)
        except Inconclusive as reason:
            inconclusive, problems = True, [str(reason)]
        verification = Verification(
            result="inconclusive" if inconclusive else "bad" if problems else "good",
            checked_at=iso(self._clock.now_ms()),
            seconds=round(self._clock.monotonic() - began, 3),
            app_version=__version__,
            problems=tuple(problems[:PROBLEMS_MAX]),
        )
        if not inconclusive or before is None:
            self._backups.record(name, verification)
        return verification

    def _problems(self, name: str, path: Path, identities: Identities | None) -> list[str]:
        try:
            manifest = self._backups.read(name)
        except BackupDamaged as error:
            return [error.message]
        except VersionRefused as error:
            raise Inconclusive(error.message) from None
        total = shutil.disk_usage(self._backups.root).total
        if max(manifest.bytes, manifest.stored_bytes) > total:  # a complete read would take hours
            raise Inconclusive(f"it declares {manifest.bytes:,} bytes, and the disk has {total:,}")
        problems = self._damaged_files(path, manifest)
        if problems:
            return problems
        needed = manifest.bytes + self._settings.free_bytes_min
        try:
            check_space(needed, free_bytes(self._backups.root), "")
            with self._backups.scratch() as scratch:
                return self._restore(path, manifest, identities, DataDir(scratch))
        except BackupDamaged as error:
            return [error.message]
        except (KeyRefused, BackupNotWritable) as error:
            raise Inconclusive(error.message) from None

    def _damaged_files(self, path: Path, manifest: BackupManifest) -> list[str]:
        """Return all changed files, so that one run names them all."""
        problems = []
        for file in manifest.files:
            try:
                for _ in pieces(path, file):
                    self._deadline.check()
            except BackupDamaged as error:
                problems.append(error.message)
        return problems

    def _restore(
        self, path: Path, manifest: BackupManifest, identities: Identities | None, scratch: DataDir
    ) -> list[str]:
        unpack(path, manifest, scratch.workspace, identities, self._report)
        problems = scratch_stores.problems(scratch, manifest, self._deadline)
        if problems:
            return problems
        try:
            scratch_stores.migrate_older(scratch, manifest, self._clock)
        except (StoreFull, DataDirNotWritable) as error:
            raise Inconclusive(error.message) from None
        except ApplianceError as error:
            return [error.message]
        try:
            with ScratchServer(scratch, self._clock, self._deadline) as server:
                problems = scratch_served.problems(server, scratch, manifest)
        except ServerFailed as error:
            return [str(error)]
        if problems:
            return problems
        groups = {store: group for store in manifest.stores if (group := rules_of(store).checks)}
        problems = self._run_checks(scratch, groups, self._deadline.left())
        self._deadline.check()  # checks that were interrupted prove nothing
        return problems

    def _report(self, file: str, done: int, total: int) -> None:
        self._deadline.check()
        self._progress(file, done, total)

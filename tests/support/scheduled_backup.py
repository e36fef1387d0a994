"""Backups made in a moment, and a command line that makes them: for what happens around backups."""

import hashlib
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from appliance.backup import scheduled
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.manifest import BackupFile, BackupManifest, Reason, Verification
from appliance.child.command import CommandResult
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.whole_file import write_whole

CONTENT = b"rows"


def make_backup(
    backups: BackupDirectory,
    now_ms: int,
    reason: Reason = "manual",
    *,
    lasting_ms: int = 0,
    last_event_id: int = 7,
) -> BackupManifest:
    """A whole backup with one small file."""
    with backups.only_writer():
        return write_backup(
            backups, now_ms, reason, lasting_ms=lasting_ms, last_event_id=last_event_id
        )


def write_backup(
    backups: BackupDirectory,
    now_ms: int,
    reason: Reason,
    *,
    lasting_ms: int = 0,
    last_event_id: int = 7,
) -> BackupManifest:
    """The same, for a writer."""
    name, partial = backups.begin(now_ms)
    write_whole(partial / "token", CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = BackupFile(
        name="token", path=".agentlip/token", kind="secret", mode=0o600, bytes=len(CONTENT),
        sha256=digest, stored_bytes=len(CONTENT), stored_sha256=digest,
    )  # fmt: skip
    manifest = BackupManifest(
        name=name, reason=reason, created_at=iso(now_ms), cut_at=iso(now_ms),
        seconds=lasting_ms / 1000, pause_ms=1.5, app_version="1.0", db_id="db", epoch="e1",
        last_event_id=last_event_id, stores={}, files=(file,),
    )  # fmt: skip
    backups.finish(manifest, partial)
    return manifest


def verified(backups: BackupDirectory, name: str, result: Any, now_ms: int) -> Verification:
    """Records a result."""
    problems = () if result == "good" else (f"it is {result}",)
    verification = Verification(
        result=result, checked_at=iso(now_ms), seconds=1.0, app_version="1.0", problems=problems
    )
    backups.record(name, verification)
    return verification


class CommandLine:
    """`agentlip backup scheduled` in this process, with phases that only note that they ran.
    Backups and results are real.

    result    of each verification
    verified  the names of the backups that were verified
    faults    the errors of the next attempts of a phase, by its name
    """

    def __init__(self, work: BackupWorkspace) -> None:
        self._work = work
        self._calls: list[str] = []
        self.result = "good"
        self.verified: list[str] = []
        self.faults: dict[str, list[ApplianceError]] = {}

    def run(self, arguments: Sequence[str], seconds_max: float, **more: Any) -> CommandResult:
        del seconds_max, more
        with (
            patch.object(scheduled, "create_backup", self._create),
            patch.object(scheduled.prune, "prune", lambda *_: self._try("prune")),
        ):
            try:
                attempts = scheduled.run(
                    self._work,
                    create="--create" in arguments,
                    recheck="--recheck" in arguments,
                    verify=self._verify,
                    upload=lambda: self._try("upload"),
                )
            except ApplianceError as error:
                body = {"error": error.message, "code": error.code, "hint": error.hint}
                return CommandResult(1, b"", False, False, 0.0, msgspec.json.encode(body))
        output = msgspec.json.encode(list(attempts.failures.values()))
        return CommandResult(0, output, False, False, 0.0)

    def did(self) -> list[str]:
        """The phases since the last call."""
        names, self._calls = self._calls, []
        return names

    def _try(self, phase: str) -> None:
        self._calls.append(phase)
        if self.faults.get(phase):
            raise self.faults[phase].pop(0)

    def _create(self, *_: object, **more: Any) -> None:
        self._try("create")
        write_backup(self._work.backups, self._work.clock.now_ms(), more["reason"])

    def _verify(self, name: str, key: object) -> Verification:
        del key
        self.verified.append(name)
        self._try("verify")
        return verified(self._work.backups, name, self.result, self._work.clock.now_ms())

"""Backups made in a moment, and a command line that makes them: for what happens around backups."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.manifest import BackupFile, BackupManifest, Reason, Verification
from appliance.kernel.clock import Clock, iso
from appliance.kernel.subprocess_runner import CommandResult
from appliance.kernel.whole_file import write_whole

CONTENT = b"rows"


def make_backup(
    backups: BackupDirectory, now_ms: int, reason: Reason = "manual", *, lasting_ms: int = 0
) -> BackupManifest:
    """A whole backup with one small file."""
    with backups.only_writer():
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
            last_event_id=7, stores={}, files=(file,),
        )  # fmt: skip
        backups.finish(manifest, partial)
    return manifest


def verified(backups: BackupDirectory, name: str, result: Any, now_ms: int) -> None:
    problems = () if result == "good" else (f"it is {result}",)
    backups.record(
        name,
        Verification(
            result=result, checked_at=iso(now_ms), seconds=1.0, app_version="1.0", problems=problems
        ),
    )


class CommandLine:
    """`agentlip backup …` without the work: it makes real backups. `calls` are its arguments.

    result  of each verification; None: the command ends without one
    faults  the error codes of the next calls of a subcommand, by its name
    verifies_at_once  `create` verifies too
    during  called while a command runs
    """

    def __init__(self, backups: BackupDirectory, clock: Clock) -> None:
        self._backups = backups
        self._clock = clock
        self.calls: list[tuple[str, ...]] = []
        self.result: str | None = "good"
        self.verifies_at_once = False
        self.faults: dict[str, list[str]] = {}
        self.during: Callable[[], None] = lambda: None

    def run(self, arguments: Sequence[str], seconds_max: float, **more: Any) -> CommandResult:
        del seconds_max, more
        _, command, *rest = arguments
        self.calls.append((command, *rest))
        self.during()
        codes = self.faults.get(command)
        if codes:
            error = {"error": f"{command} failed", "code": codes.pop(0), "hint": "df"}
            return CommandResult(1, b"", False, False, 0.0, msgspec.json.encode(error))
        if command == "create":
            reason: Reason = "schedule" if "--scheduled" in rest else "manual"
            name = make_backup(self._backups, self._clock.now_ms(), reason).name
            if self.verifies_at_once:
                verified(self._backups, name, self.result, self._clock.now_ms())
        elif command == "verify" and self.result is not None:
            verified(self._backups, rest[0], self.result, self._clock.now_ms())
        return CommandResult(0, b"{}", False, False, 0.0)

    def did(self) -> list[str]:
        """The subcommands since the last call."""
        names, self.calls = [call[0] for call in self.calls], []
        return names

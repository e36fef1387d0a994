"""Records the last failures in `.agentlip/backups`, so that commands show them while nothing
runs.

The file stays there if `backup.directory` is elsewhere, because that directory may be what fails.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from appliance.backup.backup_directory import BackupWorkspace, writing
from appliance.backup.errors import BackupRunning
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.json_file import read_json
from appliance.kernel.whole_file import write_whole

FILE = "failures.json"
Phase = Literal["create", "verify", "prune", "upload"]


class BackupFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A phase's last failure, kept until the phase succeeds."""

    phase: Phase
    failed_at: str
    code: str
    error: str
    hint: str = ""


class Attempts:
    """Tries backup phases.

    failures  unrepaired failures, also from earlier attempts, by phase
    failed    the phases that failed in this attempt
    """

    def __init__(self, work: BackupWorkspace) -> None:
        self._clock = work.clock
        failures = read_failures(work.datadir.backups, work.settings)
        self.failures = {failure.phase: failure for failure in failures}
        self.failed = set[Phase]()

    @contextmanager
    def record(self, phase: Phase) -> Iterator[None]:
        """Record an error in the block as this phase's failure, and otherwise success. Another
        process working on the backups is not a failure; that error is raised."""
        self.failures.pop(phase, None)
        try:
            yield
        except BackupRunning:
            raise
        except ApplianceError as error:
            self.failed.add(phase)
            self.failures[phase] = BackupFailure(
                phase=phase,
                failed_at=iso(self._clock.now_ms()),
                code=error.code,
                error=error.message,
                hint=error.hint or "",
            )


def write_failures(root: Path, failures: list[BackupFailure]) -> None:
    """Write the failures. Raises BackupNotWritable."""
    with writing():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(root / FILE, msgspec.json.encode(failures))


def read_failures(root: Path, settings: BackupSettings) -> list[BackupFailure]:
    """Return the last failures for the phases that the settings still have; none if the file is
    missing or can't be decoded."""
    omitted = {"verify": not settings.verify, "upload": not settings.targets}
    failures = read_json(root / FILE, list[BackupFailure]) or []
    return [failure for failure in failures if not omitted.get(failure.phase)]


def end_failure(work: BackupWorkspace, phase: Phase) -> None:
    """End a failure after a command succeeded where the schedule failed."""
    root, settings = work.datadir.backups, work.settings
    failures = read_failures(root, settings)
    left = [failure for failure in failures if failure.phase != phase]
    if left != failures:
        write_failures(root, left)

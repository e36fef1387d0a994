"""What the appliance does about backups now, and what failed last."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.backup import wire
from appliance.backup.errors import BackupNotWritable
from appliance.backup.failures import read_failures, write_failures
from appliance.backup.schedule import Phase
from appliance.kernel.wakeup import Wakeup


class BackupRequest(msgspec.Struct, frozen=True):
    """Work that an administrator asked for. `name`: the backup to verify."""

    phase: wire.Work
    name: str = ""


class BackupActivity:
    """Shared by the loop, which does the work, and the routes, which ask for it and show it.

    `work` wakes the loop. One request waits at most, because only one process writes at a time.
    """

    def __init__(self, root: Path, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called after failures, and when they are over."""
        self._root = root
        self._changed = changed
        self.work = Wakeup()
        self.request: BackupRequest | None = None
        self.running: Phase | None = None
        self.name: str | None = None
        self.started_ms = 0
        self.next_ms: int | None = None
        self.failures: dict[str, wire.BackupFailure] = {
            failure.phase: failure for failure in read_failures(root)
        }

    @property
    def is_busy(self) -> bool:
        return self.running is not None or self.request is not None

    def ask(self, request: BackupRequest) -> None:
        self.request = request
        self.work.set()

    def take(self) -> BackupRequest | None:
        """The waiting request, which is then no longer waiting."""
        request, self.request = self.request, None
        return request

    def note_failure(self, failure: wire.BackupFailure) -> bool:
        """Records a failure. False if the same one is recorded already."""
        before = self.failures.get(failure.phase)
        self.failures[failure.phase] = failure
        self._write()
        return before is None or (before.code, before.error) != (failure.code, failure.error)

    def note_success(self, phase: Phase) -> bool:
        """False if the phase did not fail before."""
        if self.failures.pop(phase, None) is None:
            return False
        self._write()
        return True

    def _write(self) -> None:
        # On a full disk only the running appliance shows the failure.
        with suppress(BackupNotWritable):
            write_failures(self._root, list(self.failures.values()))
        self._changed()

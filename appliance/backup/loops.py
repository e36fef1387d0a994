"""Runs a child process when a backup is due, which makes the backup and does all further phases.

The existing backups determine when the next backup is due, so a restart neither repeats nor forgets
one.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.backup import metrics
from appliance.backup.backup_directory import BackupDirectory, ListedBackup, newest_of
from appliance.backup.errors import BackupNotWritable, BackupRunning
from appliance.backup.exposition import set_gauges, set_upload_gauges
from appliance.backup.failures import BackupFailure, Phase, read_failures, write_failures
from appliance.backup.schedule import NICENESS, RETRY, ScheduleFacts, due_in_seconds
from appliance.backup.scheduled import RECHECK_MS, next_recheck
from appliance.backup.settings import BackupSettings
from appliance.backup.upload_state import read_states
from appliance.kernel.clock import Clock, iso
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.retry import delay_seconds
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner, CommandTooSlow, error_of

WAITED_SECONDS = 30.0  # how long an earlier process's data counts as present already
GRACE_SECONDS = 30.0  # a command that exceeds its limit ends by itself, with a better message
PHASES = 4  # a backup, its check, a kept backup's check and an upload have `seconds_max` each
RECHECK_FIRST_SECONDS = 3600.0  # from a start until a kept backup is checked
TOO_SLOW = "raise backup.seconds_max in agentlip.toml"


class BackupScheduler(Loop):
    """Checks every few seconds whether there is work. The check reads manifests only after a
    change, and starts a process only for work. `next_ms`: when the next backup is due; None: not
    planned. `failures_changed` is called after failures, and when they are over; `ended` after
    each run, with whether the run had no failures."""

    name = "backup_scheduler"
    interval_seconds = 5.0

    def __init__(
        self,
        child: CommandRunner,
        backups: BackupDirectory,
        failures_root: Path,
        has_data: Callable[[], bool],
        settings: BackupSettings,
        clock: Clock,
        log: Log,
        failures_changed: Callable[[], None] = lambda: None,
        ended: Callable[[bool], None] = lambda _succeeded: None,
    ) -> None:
        super().__init__(clock, log)
        self.next_ms: int | None = None
        self._is_running = self._is_requested = False
        self._to_verify: str | None = None
        self._child = child
        self._backups = backups
        self._has_data = has_data
        self._settings = settings
        self._failures_changed = failures_changed
        self._ended = ended
        self._failures_root = failures_root
        self._failures = {
            failure.phase: failure for failure in read_failures(failures_root, settings)
        }
        self._listed: list[ListedBackup] = []
        self._signature: object = None
        self._is_first = self._is_left = True  # work that an earlier process did not reach
        self._failed_runs = 0
        self._not_before = float("-inf")  # these four: seconds of uptime
        self._recheck_at = clock.uptime() + RECHECK_FIRST_SECONDS
        self._data_since: float | None = None
        self._created_at: float | None = None
        metrics.enabled.set(settings.enabled)

    @property
    def next_at_ms(self) -> int | None:
        return self.next_ms

    def request(self, name: str | None = None) -> bool:
        """Request a backup now, or the verification of the backup `name`, also with
        `backup.enabled = false`. Return False while there is such work."""
        if self._is_running or self._is_requested or self._to_verify is not None:
            return False
        self._is_requested, self._to_verify = name is None, name
        self.nudge()
        return True

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._verify_requested()
        in_thread(self._refresh)
        newest, uptime = newest_of(self._listed, now_ms), self.clock.uptime()
        due = self._due_seconds(newest, now_ms, uptime) if self._settings.enabled else None
        create = self._is_requested or (due is not None and due <= 0)
        is_left = self._is_left and newest is not None and self._settings.enabled
        recheck = (
            newest is not None
            and self._settings.enabled
            and self._settings.verify
            and uptime >= self._recheck_at
            and next_recheck(self._listed, newest, now_ms) is not None
        )
        runs = self._is_requested or (uptime >= self._not_before and (create or is_left or recheck))
        runs = runs and not in_thread(self._backups.is_busy)
        if runs:
            self._make(create, recheck)
            in_thread(self._refresh)
            newest = newest_of(self._listed, self.clock.now_ms())
            if self._settings.enabled:
                self._due_seconds(newest, self.clock.now_ms(), uptime)
        set_gauges(self._listed, newest, self.clock.now_ms())
        set_upload_gauges(in_thread(read_states, self._failures_root, self._settings.targets))
        self._is_first = False
        return {"runs": int(runs)}

    def _refresh(self) -> None:
        """List the backups again after a change in the directory or in the newest result."""
        newest = self._listed[-1].path if self._listed else self._backups.root
        signature = (_read_mtime(self._backups.root), _read_mtime(newest))
        if signature != self._signature:
            try:
                self._listed = self._backups.list()
            except OSError:  # the next backup fails, and its error is reported
                self._listed = []
            self._signature = signature

    def _due_seconds(self, newest: ListedBackup | None, now_ms: int, uptime: float) -> float | None:
        """Return the seconds until the next backup; None if there is nothing to back up yet."""
        if newest is None and self._data_since is None and in_thread(self._has_data):
            # Else a process that is started again and again would never make a backup.
            self._data_since = uptime - (WAITED_SECONDS if self._is_first else 0.0)
        facts = ScheduleFacts(
            backup_age=None if newest is None else (now_ms - newest.cut_ms) / 1000,
            backup_seconds=0.0 if newest is None else newest.seconds,
            data_age=None if self._data_since is None else uptime - self._data_since,
            created_ago=None if self._created_at is None else uptime - self._created_at,
        )
        due = due_in_seconds(self._settings, facts)
        self.next_ms = None if due is None else now_ms + int(max(due, 0) * 1000)
        return due

    def _make(self, create: bool, recheck: bool) -> None:
        """Run `agentlip backup scheduled`, and try again later if a phase failed."""
        self._is_running, self._is_requested = True, False
        before, uptime = self._failures, self.clock.uptime()
        try:
            options = {"--create": create, "--recheck": recheck}
            failures = self._command("scheduled", *(name for name in options if options[name]))
        except BackupRunning:  # somebody else's command was faster
            self._is_left = True
            if not create:  # copies to a target, which can take long
                self._not_before = uptime + delay_seconds(RETRY, 1)
            return
        finally:
            self._is_running = False
            self._signature = None
        if recheck:
            self._recheck_at = uptime + RECHECK_MS / 1000
        self._failures = {failure.phase: failure for failure in failures}
        failed = [failure for failure in failures if before.get(failure.phase) != failure]
        if create and "create" not in {failure.phase for failure in failed}:
            self._created_at = uptime
        self._is_left = bool(failed)
        self._ended(not failures)
        self._failed_runs = self._failed_runs + 1 if failed else 0
        self._not_before = uptime + delay_seconds(RETRY, self._failed_runs) if failed else uptime
        self._report(before, failed)

    def _verify_requested(self) -> None:
        """Verify the requested backup. The list of backups has the result, good or bad."""
        if self._to_verify is None:
            return
        try:
            seconds_max = self._settings.seconds_max + GRACE_SECONDS
            arguments = ("backup", "verify", self._to_verify)
            done = self._child.run(
                arguments, seconds_max, niceness=NICENESS, too_slow_hint=TOO_SLOW
            )
            if done.code != 0:
                error = error_of(done)
                self.log.error("a backup was not verified", code=error.code, reason=error.error)
        except (CommandTooSlow, OSError) as error:
            self.log.error("a backup was not verified", reason=str(error))
        finally:
            self._to_verify = self._signature = None

    def _command(self, *arguments: str) -> list[BackupFailure]:
        """Return the failures that the command reports. Raises BackupRunning."""
        seconds_max = PHASES * self._settings.seconds_max + GRACE_SECONDS
        try:
            done = self._child.run(
                ("backup", *arguments),
                seconds_max,
                # A backup holds the stores for a moment, without waiting for the CPU.
                niceness=0 if "--create" in arguments else NICENESS,
                too_slow_hint=TOO_SLOW,
            )
        except CommandTooSlow as error:
            return [self._failure(error.code, error.message, error.hint or "")]
        except OSError as error:
            reason = f"the command can't be started: {error.strerror}"
            return [self._failure("INTERNAL_ERROR", reason, "agentlip backup create")]
        if done.code == 0:
            return msgspec.json.decode(done.output, type=list[BackupFailure])
        printed = error_of(done)
        if printed.code == BackupRunning.code:
            raise BackupRunning
        return [self._failure(printed.code, printed.error, printed.hint)]

    def _failure(self, code: str, error: str, hint: str) -> BackupFailure:
        at = iso(self.clock.now_ms())
        return BackupFailure(phase="create", failed_at=at, code=code, error=error, hint=hint)

    def _report(self, before: dict[Phase, BackupFailure], failed: list[BackupFailure]) -> None:
        """Count failures. Each is logged once, until the failure changes."""
        for phase in metrics.PHASES:
            metrics.failing.labels(phase).set(phase in self._failures)
        for failure in failed:
            metrics.failures.labels(failure.phase).inc()
            old = before.get(failure.phase)
            if old is None or (old.code, old.error) != (failure.code, failure.error):
                self.log.error(
                    "backup failed", phase=failure.phase, code=failure.code, reason=failure.error,
                    hint=failure.hint,
                )  # fmt: skip
        for phase in before.keys() - self._failures.keys():
            self.log.info("backups work again", phase=phase)
        if before != self._failures:
            # On a full disk only the running appliance shows the failure.
            with suppress(BackupNotWritable):
                write_failures(self._failures_root, list(self._failures.values()))
            self._failures_changed()


def _read_mtime(path: Path) -> int:
    """Return when the file or directory was changed, in nanoseconds; 0 if unreadable."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0

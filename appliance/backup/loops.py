"""BackupScheduler: makes, verifies, prunes and uploads backups in child processes, one at a time.

    create ─▶ verify ─ good ─▶ prune ─▶ upload        a phase that failed is tried again later;
                     ─ inconclusive ─▶ upload         a new backup begins anew when it is due
                     ─ bad ─▶ nothing

When the next backup is due follows from the backups themselves, so a restart neither repeats nor
forgets one.
"""

from collections.abc import Callable

from appliance.backup import metrics, wire
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.catalogue import BackupCatalogue, BackupFacts
from appliance.backup.errors import (
    BackupNotWritable,
    BackupRunning,
    VerificationFailed,
    VerificationInconclusive,
)
from appliance.backup.exposition import read_uploads, show, show_uploads
from appliance.backup.manifest import Verification
from appliance.backup.schedule import (
    NICENESS,
    RETRY,
    Phase,
    ScheduleFacts,
    due_in_seconds,
    left_after,
)
from appliance.backup.settings import BackupSettings
from appliance.backup.state import BackupActivity, BackupRequest
from appliance.kernel.clock import Clock, iso
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.retry import delay_seconds
from appliance.kernel.threads import in_thread
from appliance.workspace.command_runner import CommandRunner, CommandTooSlow, error_of

CREATE = "agentlip backup create"
SHOW = "agentlip backup show"
WAITED_SECONDS = 30.0  # how long data of an earlier process counts as present already
GRACE_SECONDS = 30.0  # a command that exceeds its limit ends by itself, with a better message
RECHECK_FIRST_SECONDS = 3600.0  # from a start to the first check of a kept backup
RECHECK_SECONDS = 86_400.0  # from one to the next
TOO_SLOW = "raise backup.seconds_max in agentlip.toml"


class BackupScheduler(Loop):
    """Checks every few seconds whether there is work. That reads no manifest twice, and starts a
    process only for work."""

    name = "backup_scheduler"
    interval_seconds = 5.0

    def __init__(
        self,
        child: CommandRunner,
        backups: BackupDirectory,
        catalogue: BackupCatalogue,
        activity: BackupActivity,
        has_data: Callable[[], bool],
        settings: BackupSettings,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log, activity.work)
        self._child = child
        self._backups = backups
        self._catalogue = catalogue
        self._activity = activity
        self._has_data = has_data
        self._settings = settings
        self._uploads_changed = True
        self._left: tuple[Phase, ...] | None = None  # None: not read from the backups yet
        self._of = ""  # the backup of these phases
        self._failures = 0
        self._not_before = float("-inf")  # these three: seconds of uptime
        self._recheck_at = clock.uptime() + RECHECK_FIRST_SECONDS
        self._data_since: float | None = None
        self._created_at: float | None = None
        metrics.enabled.set(settings.enabled)

    def run_once(self, now_ms: int) -> dict[str, int]:
        problem = in_thread(self._refresh)
        if problem is not None:
            if self.clock.uptime() >= self._not_before:
                self._note_failure("create", problem)
            return {"phases": 0}
        request = self._activity.take()
        done = 0
        if request is not None:
            done = self._do_requested(request)
        elif self._settings.enabled:
            done = self._follow_schedule(now_ms)
        if done:
            in_thread(self._refresh)
        now_ms = self.clock.now_ms()
        show(self._catalogue.facts, self._catalogue.newest(now_ms), now_ms)
        targets = self._settings.targets
        if targets and (done or self._uploads_changed):
            show_uploads(
                in_thread(read_uploads, self._backups.root, self._catalogue.facts, targets)
            )
        self._uploads_changed = False
        return {"phases": done}

    def _refresh(self) -> "PhaseFailed | None":
        """Why the backups can't be listed."""
        try:
            self._catalogue.refresh()
        except OSError as error:
            message = f"the backups can't be listed: {error.strerror}"
            return PhaseFailed(message, BackupNotWritable.code, BackupNotWritable.default_hint)
        return None

    # -- what is due ------------------------------------------------------------------------------

    def _follow_schedule(self, now_ms: int) -> int:
        uptime = self.clock.uptime()
        due = self._due(now_ms)
        if self._left is None:
            self._resume(self._catalogue.newest(now_ms))
        is_due = due is not None and due <= 0
        if not (is_due or self._left):
            return self._recheck(now_ms, uptime)
        if uptime < self._not_before:
            return 0
        if in_thread(self._backups.is_busy):
            return 0
        if is_due:
            if not self._create(scheduled=True):
                return 0
            self._created_at = uptime
            self._due(now_ms)
        elif self._of not in {facts.name for facts in self._catalogue.facts}:
            self._left = ()  # it was removed meanwhile
        return int(is_due) + self._finish()

    def _recheck(self, now_ms: int, uptime: float) -> int:
        """Verifies a kept backup each day, that of the oldest verification first, because bytes on
        a disk can change. One that could not be verified is not tried again and again."""
        if (
            not self._settings.verify
            or uptime < self._recheck_at
            or in_thread(self._backups.is_busy)
        ):
            return 0
        before = iso(now_ms - int(RECHECK_SECONDS * 1000))
        checked = [(fact.row.verification, fact.row) for fact in self._catalogue.facts]
        old = sorted(
            (at, row.name)
            for result, row in checked
            if result is None or result.result == "good"
            if (at := row.cut_at if result is None else result.checked_at) < before
        )
        if not old:
            return 0
        self._recheck_at = uptime + RECHECK_SECONDS
        return self._do_requested(BackupRequest("verify", old[0][1]))

    def _due(self, now_ms: int) -> float | None:
        """Seconds until the next backup; None if there is nothing to back up yet."""
        facts = self._facts(self._catalogue.newest(now_ms), now_ms, self.clock.uptime())
        due = due_in_seconds(self._settings, facts)
        self._activity.next_ms = None if due is None else now_ms + int(max(due, 0) * 1000)
        return due

    def _facts(self, newest: BackupFacts | None, now_ms: int, uptime: float) -> ScheduleFacts:
        if newest is None and self._data_since is None:
            is_first = self._left is None
            if in_thread(self._has_data):
                # Else a process that is started again and again would never make a backup.
                self._data_since = uptime - (WAITED_SECONDS if is_first else 0.0)
        return ScheduleFacts(
            backup_age=None if newest is None else (now_ms - newest.cut_ms) / 1000,
            backup_seconds=0.0 if newest is None else newest.seconds,
            data_age=None if self._data_since is None else uptime - self._data_since,
            created_ago=None if self._created_at is None else uptime - self._created_at,
        )

    def _resume(self, newest: BackupFacts | None) -> None:
        """After a start: the phases that an earlier process did not reach."""
        self._left, self._of = (), ""
        if newest is not None:
            scheduled = newest.row.reason == "schedule"
            self._left = left_after(self._settings, newest.result, scheduled=scheduled)
            self._of = newest.name

    # -- phases -----------------------------------------------------------------------------------

    def _create(self, *, scheduled: bool) -> bool:
        known = {facts.name for facts in self._catalogue.facts}
        self._of = ""
        try:
            self._command("create", "create", *(["--scheduled"] if scheduled else []))
            in_thread(self._refresh)
            made = [facts for facts in self._catalogue.facts if facts.name not in known]
            if not made:
                raise PhaseFailed("the command made no backup that can be read")
        except PhaseFailed as failure:
            self._note_failure("create", failure)
            return False
        self._note_success("create")
        row = made[-1].row
        self._of = row.name
        verification = in_thread(self._backups.verification, row.name)
        result = None if verification is None else verification.result
        if verification is not None:  # one whose key is elsewhere is verified when it is made
            self._tell(row.name, verification)
        self._left = left_after(self._settings, result, scheduled=scheduled)
        self.log.info(
            "backup made", name=row.name, reason=row.reason, seconds=row.seconds,
            pause_ms=row.pause_ms, stored_bytes=row.stored_bytes,
        )  # fmt: skip
        return True

    def _finish(self) -> int:
        """Runs the phases that are left. One that fails stays, and so do those that need it."""
        done = 0
        phases, failed = list(self._left or ()), list[Phase]()
        while phases:
            phase = phases.pop(0)
            try:
                if phase == "verify":
                    result = self._verify(self._of)
                    after = left_after(self._settings, result, scheduled=True)
                    phases = [phase for phase in after if phase in phases]
                else:
                    self._command(phase, *_ARGUMENTS[phase])
                    self._note_success(phase)
                done += 1
            except PhaseFailed as failure:
                self._note_failure(phase, failure)
                failed.append(phase)
                if phase == "verify":
                    failed += phases
                    break
        self._left = tuple(failed)
        return done

    def _verify(self, name: str) -> str:
        """Verifies a backup: good, bad or inconclusive. Only what the command recorded counts.
        Raises PhaseFailed if it recorded nothing."""
        before = in_thread(self._backups.verification, name)
        failure = PhaseFailed(f"the verification of {name} recorded no result")
        try:
            self._command("verify", "verify", name)
        except PhaseFailed as reported:
            failure = reported
        verification = in_thread(self._backups.verification, name)
        if verification is None or verification == before:
            if failure.code == VerificationInconclusive.code:
                return "inconclusive"
            raise failure
        self._tell(name, verification)
        return verification.result

    def _tell(self, name: str, verification: Verification) -> None:
        if verification.result == "good":
            self._note_success("verify")
            self.log.info("backup verified", name=name, seconds=verification.seconds)
        elif verification.result == "bad":
            first = "; ".join(verification.problems[:1]) or VerificationFailed.default_message
            self._report(
                "verify",
                PhaseFailed(f"{name}: {first}", VerificationFailed.code, f"{SHOW} {name}"),
            )
        else:
            self.log.warning("backup not verified", name=name, problems=verification.problems[:3])

    def _do_requested(self, request: BackupRequest) -> int:
        """Work for an administrator, which neither waits for the schedule nor delays it."""
        if request.phase == "create":
            if not self._create(scheduled=False):
                return 0
            if self._settings.verify and in_thread(self._backups.verification, self._of) is None:
                self._left = ("verify", *(self._left or ()))
            return 1 + self._finish()
        self._of = request.name
        try:
            self._verify(request.name)
        except PhaseFailed as failure:
            self._report("verify", failure)
            return 0
        return 1

    def _command(self, phase: Phase, *arguments: str) -> None:
        """Runs `agentlip backup …`. Raises PhaseFailed."""
        activity, seconds_max = self._activity, self._settings.seconds_max
        activity.running, activity.started_ms = phase, self.clock.now_ms()
        activity.name = self._of or None
        if phase == "create":
            seconds_max *= 2  # a backup whose key is elsewhere is verified too
        try:
            done = self._child.run(
                ("backup", *arguments),
                seconds_max + GRACE_SECONDS,
                # A backup holds the stores for a moment, in which it must not wait for the CPU.
                niceness=0 if phase == "create" else NICENESS,
                too_slow_hint=TOO_SLOW,
            )
        except CommandTooSlow as error:
            raise PhaseFailed(error.message, error.code, error.hint) from None
        except OSError as error:
            raise PhaseFailed(f"the command can't be started: {error.strerror}") from error
        finally:
            activity.running = activity.name = None
            self._catalogue.forget()
        if done.code:
            printed = error_of(done)
            raise PhaseFailed(printed.error, printed.code, printed.hint)

    # -- results ----------------------------------------------------------------------------------

    def _note_failure(self, phase: Phase, failure: "PhaseFailed") -> None:
        """Tries again later. A backup of another process does not count as a failure."""
        if failure.code == BackupRunning.code:
            return
        self._report(phase, failure)
        self._uploads_changed = phase == "upload"
        self._failures += 1
        self._not_before = self.clock.uptime() + delay_seconds(RETRY, self._failures)

    def _report(self, phase: Phase, failure: "PhaseFailed") -> None:
        """Counts and shows a failure. It is logged once, until it is another one."""
        metrics.failures.labels(phase).inc()
        metrics.failing.labels(phase).set(1)
        changed = self._activity.note_failure(
            wire.BackupFailure(
                phase=phase,
                failed_at=iso(self.clock.now_ms()),
                code=failure.code,
                error=failure.message,
                hint=failure.hint,
            )
        )
        if changed:
            self.log.error(
                "backup failed", phase=phase, code=failure.code, reason=failure.message,
                hint=failure.hint,
            )  # fmt: skip

    def _note_success(self, phase: Phase) -> None:
        metrics.failing.labels(phase).set(0)
        if self._activity.note_success(phase):
            self.log.info("backups work again", phase=phase)
        if not self._activity.failures:
            self._failures, self._not_before = 0, float("-inf")


class PhaseFailed(Exception):
    """A command failed, with the error that it printed."""

    def __init__(self, message: str, code: str = "INTERNAL_ERROR", hint: str = CREATE) -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code, hint


_ARGUMENTS: dict[Phase, tuple[str, ...]] = {"prune": ("prune", "--yes"), "upload": ("upload",)}

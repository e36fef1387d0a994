"""Runs attempts: starts commands, adopts containers, waits and stores each end."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.jobs import metrics, queries, writes
from appliance.jobs.executor import AttemptEnd, AttemptOrder, ClaimedAttempt, NotStarted
from appliance.jobs.handles import EVENT, EVENT_FILE, GRACE_SECONDS, TOKEN, is_running
from appliance.jobs.process import Find, ProcessExecution, Start
from appliance.jobs.rows import StoredAttemptRow
from appliance.jobs.service import Jobs
from appliance.jobs.settings import JobsSettings
from appliance.jobs.states import CANCELLED, FAILED, LOST, SUCCEEDED
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.config import BadSettings, secret
from appliance.kernel.errors import Unavailable
from appliance.kernel.ids import prefixed_token
from appliance.kernel.log import Log
from appliance.kernel.pool import GreenletPool

TOKENS_MAX = 1000
LEASE_MS = 30_000


class AttemptSite(msgspec.Struct, frozen=True):
    """Where this process runs attempts.

    kept   the folder for output and artefacts
    url    returns this appliance's URL
    ended  called with whether a run has succeeded
    """

    workspace: Path
    kept: Path
    instance_id: str
    url: Callable[[], str]
    start: Start
    find: Find = lambda _: None
    ended: Callable[[bool], None] = lambda _succeeded: None
    attempts_max: int = JobsSettings().attempts_max


class Attempts:
    """The attempts that run now."""

    def __init__(self, jobs: Jobs, book: TokenBook, log: Log, site: AttemptSite) -> None:
        self._store = jobs.store
        self._catalogue = jobs.catalogue
        self._steady = jobs.steady
        self._signals = jobs.signals
        self._book = book
        self._log = log
        self._site = site
        self._pool = GreenletPool(site.attempts_max)
        self._running: dict[str, ProcessExecution] = {}
        self._ended: list[tuple[ClaimedAttempt, AttemptEnd]] = []
        self._has_former = True
        metrics.running.set_function(lambda: len(self._running))

    @property
    def is_working(self) -> bool:
        return bool(self._running or self._ended or self._has_former)

    def lose_former(self) -> int:
        """End earlier processes' attempts as lost, once their processes are gone. Adopt
        containers that go on."""
        if not self._has_former:
            return 0
        former = self._store.read(queries.former, self._site.instance_id)
        gone = [attempt for attempt in former if self._settle(attempt)]
        self._has_former = len(gone) < len(former)
        self._signals.note_changed()
        return len(gone)

    def _settle(self, attempt: StoredAttemptRow) -> bool:
        """Return whether an earlier process's attempt has ended, or was adopted by this process."""
        key = attempt.run_id, attempt.number
        if is_running(attempt.handle):
            return False
        try:
            environment = self._site.find(attempt.handle or "")
        except OSError as error:  # the engine does not respond, so the container may still run
            self._log.warning("a container was not adopted", run=key[0], error=str(error))
            return False
        if environment is None:
            lost = AttemptEnd(LOST, error="the appliance ended during the attempt")
            self._note_end(self._store.write(writes.end_attempt, *key, lost, random.random()))
        else:
            claimed = self._store.write(writes.adopt, *key, self._site.instance_id)
            self._pool.spawn(self._run, claimed, environment)
        return True

    def store_ends(self) -> int:
        """Store how attempts have ended. Raises Unavailable, and keeps the results for the next
        round."""
        ended = list(self._ended)
        if not ended:
            return 0
        results = self._store.write_many([
            (
                writes.end_attempt,
                (attempt.run_id, attempt.number, end, random.random(), self._followers(attempt)),
            )
            for attempt, end in ended
        ])  # fmt: skip
        for result, (_, end) in zip(results, ended, strict=True):
            self._note_end(result.unwrap())
            metrics.attempts.labels(end.state).inc()
        del self._ended[: len(ended)]
        self._signals.note_changed()
        return len(ended)

    def _note_end(self, state: str | None) -> None:
        """Report a run's success or failure, but no attempt that is repeated."""
        if state in (SUCCEEDED, FAILED, LOST):
            self._site.ended(state == SUCCEEDED)

    def _followers(self, attempt: ClaimedAttempt) -> tuple[writes.NewRun, ...]:
        return tuple(
            writes.NewRun(name, spec, "after", attempt.run_id)
            for name, spec in self._catalogue.specs.items()
            if attempt.job in spec.after
        )

    def end_cancelled(self) -> None:
        """End the attempts whose runs were cancelled or replaced."""
        for run_id in self._store.read(queries.to_cancel) if self._running else ():
            if run_id in self._running:
                self._running[run_id].cancel()

    def renew(self) -> None:
        if self._running:
            self._store.write(writes.renew, self._site.instance_id, LEASE_MS)

    def start_due(self) -> int:
        """Start attempts of runs that are due, as far as there is room."""
        free = self._pool.free_count()
        if self._signals.closed or not free or self._ended:
            return 0
        claimed = self._store.write(writes.claim, self._site.instance_id, free, LEASE_MS)
        for attempt in claimed:
            self._pool.spawn(self._run, attempt)
        return len(claimed)

    def drain(self) -> None:
        """Start no more attempts, and send SIGTERM to the running ones. Containers go on."""
        self._signals.close()
        for execution in self._running.values():
            _stop(execution)

    def close(self, timeout_seconds: float) -> None:
        """Wait for the attempts, which have GRACE_SECONDS after `drain`, and store their outcomes.
        The next process counts the rest as lost."""
        self.drain()
        if not self._pool.join(GRACE_SECONDS + timeout_seconds):
            for execution in self._running.values():
                execution.kill()
            self._pool.kill(block=False)
        with suppress(Unavailable):
            self.store_ends()

    # -- one attempt ------------------------------------------------------------------

    def _run(self, attempt: ClaimedAttempt, adopted: Mapping[str, str] | None = None) -> None:
        """Run an attempt to its end. `adopted`: the environment with which an earlier process
        started it."""
        environment: Mapping[str, str] = {}
        try:
            environment = adopted or self._environment(attempt)
            if attempt.spec.scopes:
                who = Principal(
                    attempt.run_id, f"job:{attempt.job}", frozenset(attempt.spec.scopes)
                )
                self._book.add_temporary(environment[TOKEN], who, TOKENS_MAX)
            order = AttemptOrder(
                **msgspec.structs.asdict(attempt), environment=environment,
                folder=self._site.workspace, kept=self._site.kept / attempt.run_id,
                is_adopted=adopted is not None,
            )  # fmt: skip
            execution = self._site.start(order)
        except (NotStarted, BadSettings) as error:
            end = AttemptEnd(FAILED, error=str(error)[:500])
        else:
            self._running[attempt.run_id] = execution
            late_ms = self._steady.now_ms() - attempt.due_steady_ms
            metrics.start_seconds.observe(max(0, late_ms) / 1000)
            end = self._wait(attempt, execution)
        finally:
            if TOKEN in environment:
                self._book.remove_temporary(environment[TOKEN])
        started = self._running.pop(attempt.run_id, None)
        if self._signals.closed and started is not None and started.survives:
            return  # adopted by the next process
        if self._signals.closed and end.state == CANCELLED:
            end = _end_of_stopped(attempt, end)
        self._ended.append((attempt, end))
        self._signals.work.set()

    def _wait(self, attempt: ClaimedAttempt, execution: ProcessExecution) -> AttemptEnd:
        key = attempt.run_id, attempt.number
        try:
            self._store.write(writes.note_start, *key, execution.handle, execution.limits)
            if self._signals.closed:  # started meanwhile
                _stop(execution)
            elif self._store.read(queries.find, attempt.run_id).cancel_requested:
                execution.cancel()
            end = execution.wait()
        except Exception as error:
            execution.kill()
            self._log.error("an attempt was ended", error, run=attempt.run_id)
            end = AttemptEnd(LOST, error=f"the appliance failed: {type(error).__name__}")
        try:
            if not self._signals.closed:
                execution.remove()
        except OSError as error:  # found by the doctor
            self._log.warning("a container was not removed", run=attempt.run_id, error=str(error))
        return end

    def _environment(self, attempt: ClaimedAttempt) -> dict[str, str]:
        """Return the attempt's environment. Raises BadSettings for a secret that can't be read."""
        spec, folder = attempt.spec, self._site.workspace
        secrets = {
            name: secret(str(folder / path), f"secrets.{name}")
            for name, path in spec.secrets.items()
        }
        number = str(attempt.number)
        own = {"JOB": attempt.job, "RUN": attempt.run_id, "ATTEMPT": number}
        own["ARTEFACTS"] = str(self._site.kept / attempt.run_id / number)
        if spec.scopes:
            own |= {"TOKEN": prefixed_token(), "URL": self._site.url()}
        if EVENT in spec.environment:
            own["EVENT_FILE"] = str(self._site.kept / attempt.run_id / EVENT_FILE)
        named = {f"AGENTLIP_{name}": value for name, value in own.items()}
        return {**spec.environment, **secrets, **named}


def _stop(execution: ProcessExecution) -> None:
    if execution.survives:
        execution.kill()  # only what follows the container
    else:
        execution.cancel()


def _end_of_stopped(attempt: ClaimedAttempt, end: AttemptEnd) -> AttemptEnd:
    """Return the end for an attempt that got SIGTERM because the appliance stops: a success if
    the attempt succeeded; otherwise it is lost, and may be repeated."""
    if end.exit_code in attempt.spec.success_codes:
        return msgspec.structs.replace(end, state=SUCCEEDED)
    return msgspec.structs.replace(end, state=LOST, error="the appliance stopped")

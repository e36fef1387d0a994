"""Implements the verbs for jobs and runs, and the attempts that run now."""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.jobs import metrics, output, queries, wire, writes
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.executor import AttemptEnd, AttemptOrder, ClaimedAttempt, NotStarted
from appliance.jobs.handles import EVENT, EVENT_FILE, GRACE_SECONDS, TOKEN, is_running
from appliance.jobs.process import Find, ProcessExecution, Start
from appliance.jobs.rows import StoredAttemptRow
from appliance.jobs.schedule import next_ms
from appliance.jobs.scheduler import Scheduler
from appliance.jobs.settings import JobsSettings
from appliance.jobs.spec import check_given, describe
from appliance.jobs.states import CANCELLED, FAILED, LOST, SUCCEEDED
from appliance.kernel import caller, meta
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.config import BadSettings, secret
from appliance.kernel.errors import Unavailable
from appliance.kernel.idempotency import Reply
from appliance.kernel.ids import prefixed_token
from appliance.kernel.log import Log
from appliance.kernel.pool import GreenletPool
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.threads import in_thread
from appliance.kernel.wakeup import Wakeup

NEXT_TIMES = 5
WAITS_MAX = 100  # requests that wait for a run
TOKENS_MAX = 1000
LEASE_MS = 30_000
PAGE_MAX = 200  # runs in one response; a larger `limit` is clamped
KEPT_DAYS = 30  # after a run is over
KEPT_RUNS = 20  # the latest of each job are kept longer
T = TypeVar("T")


class JobRunner:
    """The process's job runner. `kept`: the folder for output and artefacts. `url` returns this
    appliance's URL."""

    def __init__(
        self,
        store: Store,
        catalogue: JobCatalogue,
        book: TokenBook,
        clock: Clock,
        log: Log,
        *,
        workspace: Path,
        kept: Path,
        instance_id: str,
        url: Callable[[], str],
        start: Start,
        find: Find = lambda _: None,
        ended: Callable[[bool], None] = lambda _succeeded: None,
        attempts_max: int = JobsSettings().attempts_max,
    ) -> None:
        self.store = store
        self.catalogue = catalogue
        self.steady = SteadyClock(store, clock, log)
        self.work = Wakeup()
        self.outcomes = Wakeup()  # set when attempts have ended
        self._run_ended = ended
        self.triggers = Wakeup()  # set when jobs have changed
        self.asks = Wakeup()  # set when a run may have to ask
        self.closed = False
        self._book = book
        self._clock = clock
        self._log = log
        self._workspace = workspace
        self._kept = kept
        self._instance_id = instance_id
        self._url = url
        self._start = start
        self._find = find
        self._pool = GreenletPool(attempts_max)
        self._running: dict[str, ProcessExecution] = {}
        self._ended: list[tuple[ClaimedAttempt, AttemptEnd]] = []
        self._waits: set[Wakeup] = set()
        self._limit = WaitLimit(WAITS_MAX, wire.TooManyRunWaits)
        self._has_former = True
        self._scheduled_version = 0
        self.scheduler = Scheduler(store, catalogue, self.steady)
        metrics.running.set_function(lambda: len(self._running))

    def open(self) -> None:
        self.steady.open()
        self.store.seed_ids(self.store.read(queries.last_id))
        for row in self.store.read(queries.stored_jobs):
            if row.spec is not None:
                self.catalogue.put(row.name, msgspec.json.decode(row.spec, type=wire.JobSpec))

    # -- verbs --------------------------------------------------------------------

    def request_once(self, job: str, who: Principal, key: str | None) -> Reply:
        """Reply with a new run, or with the current state of the run that an earlier request
        with this key started. Raises NoSuchJob, JobBusy and TooManyRuns."""
        run, existed = self.request(job, who, key)
        return Reply(201, msgspec.json.encode(run), existed)

    def request(
        self, job: str, who: Principal, key: str | None = None
    ) -> tuple[wire.RunShown, bool]:
        """Return the run, and whether an earlier request with this key has created it. Raises
        NoSuchJob, JobBusy and TooManyRuns."""
        self.catalogue.refresh()
        spec = self.catalogue.find(job)
        if (trace := caller.traceparent()) is not None:
            environment = {**spec.environment, "TRACEPARENT": trace}
            spec = msgspec.structs.replace(spec, environment=environment)
        new = writes.NewRun(job, spec, "request", key and f"key {key}", who.label)
        run_id, existed = self.store.write(writes.create_once, new)
        self.note_created()
        if run_id is None:
            metrics.skipped.inc()
            raise wire.JobBusy(details={"job": job})
        return self.show(run_id), existed

    def put_job(self, name: str, spec: wire.JobSpec | None) -> wire.JobShown | None:
        """Make or change a job, or remove it (None). Raises BadJobSpec, JobIsFile, NoSuchJob."""
        self.catalogue.refresh()
        if any(file.name == name for file in self.catalogue.files):
            raise wire.JobIsFile(details={"job": name})
        if spec is None:
            self.catalogue.find(name)
        else:
            check_given(name, spec, self.catalogue.specs)
        self.store.write(writes.put_job, name, spec, self._clock.now_ms())
        self.catalogue.put(name, spec)
        self.work.set()
        return None if spec is None else self.show_job(name)

    def pause(self, name: str, *, is_paused: bool) -> None:
        """Pause or resume a job, or `all`. Times that pass meanwhile start one run at most."""
        self.catalogue.refresh()
        if name != writes.ALL:
            self.catalogue.find(name)
        self.store.write(writes.pause, name, is_paused)
        self.work.set()

    def list_jobs(self) -> wire.JobList:
        """Return all jobs by name, except jobs that only reported runs."""
        self.catalogue.refresh()
        latest = self.store.read(queries.latest_runs)
        paused = {row.name: row.paused_at for row in self.store.read(queries.stored_jobs)}
        problems = {file.name: file.problem for file in self.catalogue.files}
        jobs = []
        for name in sorted(self.catalogue.specs.keys() | problems.keys()):
            spec, run = self.catalogue.specs.get(name), latest.get(name)
            jobs.append(
                wire.ListedJob(
                    name=name,
                    source="file" if name in problems else "api",
                    description="" if spec is None else spec.description,
                    schedule=None if spec is None else describe(spec),
                    next_at=self.scheduler.next_at(name),
                    paused_at=paused.get(name),
                    last_state=None if run is None else run.state,
                    last_at=None if run is None else run.ended_at or run.created_at,
                    problem=problems.get(name),
                    last=run,
                )
            )
        return wire.JobList(jobs, self.store.read(meta.value, "paused"))

    def show_job(self, name: str) -> wire.JobShown:
        for job in self.list_jobs().jobs:
            if job.name == name:
                spec, times = self.catalogue.specs.get(name), [job.next_at] if job.next_at else []
                if spec is not None and spec.cron is not None:
                    now_ms = self._clock.now_ms()
                    times = [*map(iso, next_ms(spec.cron, spec.time_zone, now_ms, NEXT_TIMES))]
                return wire.JobShown(job, spec, times)
        raise wire.NoSuchJob(details={"job": name})

    def note_created(self) -> None:
        """Wake the loops: runs may have been created, and may have to ask."""
        self.work.set()
        self.asks.set()

    def cancel(self, run_id: str) -> wire.RunShown:
        self.store.write(writes.cancel, run_id)
        self.end_cancelled()
        self._wake()
        return self.show(run_id)

    def show(self, run_id: str, query: wire.RunQuery | None = None) -> wire.RunShown:
        """Return a run. Wait until it is over, at most the query's seconds."""
        read = partial(self.store.read, queries.show, run_id)
        run = self._await(read, lambda run: run.ended_at is not None, query.wait if query else 0)
        for attempt in [attempt for attempt in run.attempts if attempt.ended_at is None]:
            file = self._kept / run_id / f"{attempt.number}.log"
            run.attempts[-1] = msgspec.structs.replace(attempt, tail=in_thread(output.tail, file))
        reason = self.store.read(queries.waits_for, run_id, self.steady.now_ms())
        return wire.RunShown(msgspec.structs.replace(run, waits_for=reason))

    def history(self, job: str, query: wire.JobHistoryQuery) -> wire.RunList:
        """Return a job's runs, also a removed job's. Raises NoSuchJob."""
        limit = min(query.limit, PAGE_MAX)
        runs, more = self.store.read(queries.history, job, query.after, limit)
        if not runs and not query.after:
            self.catalogue.refresh()
            self.catalogue.find(job)
        return wire.RunList(runs, more, runs[-1].id if more else "")

    def read_output(self, run_id: str, query: wire.RunOutputQuery) -> wire.RunOutput:
        """Return output. Wait for more while the attempt runs, at most `wait` seconds."""

        def read() -> wire.RunOutput:
            run = self.store.read(queries.show, run_id)
            number = query.attempt or run.attempts_made  # it may not have started yet
            file = self._kept / run_id / f"{number}.log"
            over = not any(a.number >= number and a.ended_at is None for a in run.attempts)
            over = over and (bool(run.attempts) or run.ended_at is not None)
            text, after = in_thread(output.read, file, query.after)
            return wire.RunOutput(number, text, after, over and not text)

        return self._await(read, lambda part: part.text or part.over, query.wait)

    def _await(self, read: Callable[[], T], is_enough: Callable[[T], object], seconds: float) -> T:
        """Read until it is enough, at most `seconds`: now and then, and after each change."""
        if seconds <= 0:
            return read()
        until = self._clock.monotonic() + min(seconds, wire.WAIT_SECONDS_MAX)
        with self.waiting() as wakeup:
            while True:
                wakeup.clear()
                result, left = read(), until - self._clock.monotonic()
                if is_enough(result) or left <= 0 or self.closed or not is_there():
                    return result
                wakeup.wait(min(left, output.POLL_SECONDS))

    @contextmanager
    def waiting(self) -> Iterator[Wakeup]:
        """Yield a wakeup that is set when a run changes or the caller is gone. Raises
        TooManyRunWaits."""
        wakeup = Wakeup()
        leave = self._limit.enter(wakeup.set)
        self._waits.add(wakeup)
        try:
            yield wakeup
        finally:
            self._waits.discard(wakeup)
            leave()

    # -- rounds of the loop ---------------------------------------------------------

    @property
    def is_working(self) -> bool:
        return bool(self._running or self._ended or self._has_former)

    def lose_former(self) -> int:
        """End earlier processes' attempts as lost, once their processes are gone. Adopt
        containers that go on."""
        if not self._has_former:
            return 0
        former = self.store.read(queries.former, self._instance_id)
        gone = [attempt for attempt in former if self._settle(attempt)]
        self._has_former = len(gone) < len(former)
        self._wake()
        return len(gone)

    def _settle(self, attempt: StoredAttemptRow) -> bool:
        """Return whether an earlier process's attempt has ended, or was adopted by this process."""
        key = attempt.run_id, attempt.number
        if is_running(attempt.handle):
            return False
        try:
            environment = self._find(attempt.handle or "")
        except OSError as error:  # the engine does not respond, so the container may still run
            self._log.warning("a container was not adopted", run=key[0], error=str(error))
            return False
        if environment is None:
            lost = AttemptEnd(LOST, error="the appliance ended during the attempt")
            self._note_end(self.store.write(writes.end_attempt, *key, lost, random.random()))
        else:
            claimed = self.store.write(writes.adopt, *key, self._instance_id)
            self._pool.spawn(self._run, claimed, environment)
        return True

    def store_ends(self) -> int:
        """Store how attempts have ended. Raises Unavailable, and keeps the results for the next
        round."""
        ended = list(self._ended)
        if not ended:
            return 0
        results = self.store.write_many([
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
        self._wake()
        return len(ended)

    def _note_end(self, state: str | None) -> None:
        """Report that a run has succeeded or failed; not an attempt that is repeated."""
        if state in (SUCCEEDED, FAILED, LOST):
            self._run_ended(state == SUCCEEDED)

    def _followers(self, attempt: ClaimedAttempt) -> tuple[writes.NewRun, ...]:
        return tuple(
            writes.NewRun(name, spec, "after", attempt.run_id)
            for name, spec in self.catalogue.specs.items()
            if attempt.job in spec.after
        )

    def end_cancelled(self) -> None:
        """End the attempts whose runs were cancelled or replaced."""
        for run_id in self.store.read(queries.to_cancel) if self._running else ():
            if run_id in self._running:
                self._running[run_id].cancel()

    def renew(self) -> None:
        if self._running:
            self.store.write(writes.renew, self._instance_id, LEASE_MS)

    def schedule(self, now_ms: int, *, clock_was_set: bool) -> int:
        """Create the runs that are due by their schedule, and return how many."""
        self.catalogue.refresh()
        if clock_was_set or self.catalogue.version != self._scheduled_version:
            self._scheduled_version = self.catalogue.version
            self.scheduler.refresh(now_ms)
            self.triggers.set()
        return self.scheduler.create_due(now_ms)

    def start_due(self) -> int:
        """Start attempts of runs that are due, as far as there is room."""
        free = self._pool.free_count()
        if self.closed or not free or self._ended:
            return 0
        claimed = self.store.write(writes.claim, self._instance_id, free, LEASE_MS)
        for attempt in claimed:
            self._pool.spawn(self._run, attempt)
        return len(claimed)

    def prune(self, now_ms: int) -> int:
        ids = self.store.write(writes.prune, iso(now_ms - KEPT_DAYS * DAY_MS), KEPT_RUNS)
        for run_id in ids:
            in_thread(shutil.rmtree, self._kept / run_id, True)
        return len(ids)

    def drain(self) -> None:
        """Start no more attempts, and send SIGTERM to the running ones. Containers go on."""
        self.closed = True
        self._wake()
        for execution in self._running.values():
            _stop(execution)

    def close(self, timeout_seconds: float) -> None:
        """Wait for the attempts, which have GRACE_SECONDS after `drain`, and store how they
        ended. The next process counts the others as lost."""
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
                **msgspec.structs.asdict(attempt), environment=environment, folder=self._workspace,
                kept=self._kept / attempt.run_id, is_adopted=adopted is not None,
            )  # fmt: skip
            execution = self._start(order)
        except (NotStarted, BadSettings) as error:
            end = AttemptEnd(FAILED, error=str(error)[:500])
        else:
            self._running[attempt.run_id] = execution
            late_ms = self.steady.now_ms() - attempt.due_steady_ms
            metrics.start_seconds.observe(max(0, late_ms) / 1000)
            end = self._wait(attempt, execution)
        finally:
            if TOKEN in environment:
                self._book.remove_temporary(environment[TOKEN])
        started = self._running.pop(attempt.run_id, None)
        if self.closed and started is not None and started.survives:
            return  # the next process adopts it
        if self.closed and end.state == CANCELLED:
            end = _end_of_stopped(attempt, end)
        self._ended.append((attempt, end))
        self.work.set()

    def _wait(self, attempt: ClaimedAttempt, execution: ProcessExecution) -> AttemptEnd:
        key = attempt.run_id, attempt.number
        try:
            self.store.write(writes.note_start, *key, execution.handle, execution.limits)
            if self.closed:  # it started meanwhile
                _stop(execution)
            elif self.store.read(queries.find, attempt.run_id).cancel_requested:
                execution.cancel()
            end = execution.wait()
        except Exception as error:
            execution.kill()
            self._log.error("an attempt was ended", error, run=attempt.run_id)
            end = AttemptEnd(LOST, error=f"the appliance failed: {type(error).__name__}")
        try:
            if not self.closed:
                execution.remove()
        except OSError as error:  # the doctor finds it
            self._log.warning("a container was not removed", run=attempt.run_id, error=str(error))
        return end

    def _environment(self, attempt: ClaimedAttempt) -> dict[str, str]:
        """Return the attempt's environment. Raises BadSettings for a secret that can't be read."""
        spec, folder = attempt.spec, self._workspace
        secrets = {name: secret(str(folder / path)) for name, path in spec.secrets.items()}
        number = str(attempt.number)
        own = {"JOB": attempt.job, "RUN": attempt.run_id, "ATTEMPT": number}
        own["ARTEFACTS"] = str(self._kept / attempt.run_id / number)
        if spec.scopes:
            own |= {"TOKEN": prefixed_token(), "URL": self._url()}
        if EVENT in spec.environment:
            own["EVENT_FILE"] = str(self._kept / attempt.run_id / EVENT_FILE)
        named = {f"AGENTLIP_{name}": value for name, value in own.items()}
        return {**spec.environment, **secrets, **named}

    def _wake(self) -> None:
        """Wake the waiting callers: runs may have changed, or ended."""
        self.outcomes.set()
        for wakeup in self._waits:
            wakeup.set()


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

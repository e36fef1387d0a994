"""Implements the verbs for jobs and runs."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from appliance.jobs import metrics, output, queries, wire, writes
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.schedule import next_ms
from appliance.jobs.scheduler import Scheduler
from appliance.jobs.signals import JobSignals
from appliance.jobs.spec import check_given, describe
from appliance.kernel import caller, meta
from appliance.kernel.auth import Principal
from appliance.kernel.caller import is_there
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.idempotency import Reply
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.threads import in_thread

NEXT_TIMES = 5
PAGE_MAX = 200  # runs in one response; a larger `limit` is clamped
KEPT_DAYS = 30  # after a run is over
KEPT_RUNS = 20  # each job's latest runs are kept longer
T = TypeVar("T")


class Jobs:
    """The jobs of a workspace and their runs. `kept`: the folder for output and artefacts."""

    def __init__(
        self,
        store: Store,
        catalogue: JobCatalogue,
        steady: SteadyClock,
        signals: JobSignals,
        clock: Clock,
        kept: Path,
    ) -> None:
        self.catalogue = catalogue
        self.signals = signals
        self.store = store
        self.steady = steady
        self.scheduler = Scheduler(store, catalogue, steady)
        self._clock = clock
        self._kept = kept

    def open(self) -> None:
        self.steady.open()
        self.store.seed_ids(self.store.read(queries.last_id))
        for row in self.store.read(queries.stored_jobs):
            if row.spec is not None:
                self.catalogue.put(row.name, msgspec.json.decode(row.spec, type=wire.JobSpec))

    def request_once(self, job: str, who: Principal, key: str | None) -> Reply:
        """Reply with a new run, or with the current state of the run that an earlier request
        with this key started. Raises NoSuchJob, JobBusy and TooManyRuns."""
        run, existed = self.request(job, who, key)
        return Reply(201, msgspec.json.encode(run), existed)

    def request(
        self, job: str, who: Principal, key: str | None = None
    ) -> tuple[wire.RunShown, bool]:
        """Return the run, and whether an earlier request with this key was its origin. Raises
        NoSuchJob, JobBusy and TooManyRuns."""
        self.catalogue.refresh()
        spec = self.catalogue.find(job)
        if (trace := caller.traceparent()) is not None:
            environment = {**spec.environment, "TRACEPARENT": trace}
            spec = msgspec.structs.replace(spec, environment=environment)
        new = writes.NewRun(job, spec, "request", key and f"key {key}", who.label)
        run_id, existed = self.store.write(writes.create_once, new)
        self.signals.note_created()
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
        self.signals.work.set()
        return None if spec is None else self.show_job(name)

    def pause(self, name: str, *, is_paused: bool) -> None:
        """Pause or resume a job, or `all`. Times that pass meanwhile start one run at most."""
        self.catalogue.refresh()
        if name != writes.ALL:
            self.catalogue.find(name)
        self.store.write(writes.pause, name, is_paused)
        self.signals.work.set()

    def list_jobs(self) -> wire.JobList:
        """Return all jobs by name, except jobs that only reported runs."""
        self.catalogue.refresh()
        latest, failures = self.store.read(queries.latest_runs), self.store.read(queries.failures)
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
                    failures=failures.get(name, 0),
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

    def cancel(self, run_id: str) -> wire.RunShown:
        self.store.write(writes.cancel, run_id)
        self.signals.work.set()  # the loop ends the attempt
        self.signals.note_changed()
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
            number = query.attempt or run.attempts_made  # may not have started yet
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
        with self.signals.waiting() as wakeup:
            while True:
                wakeup.clear()
                result, left = read(), until - self._clock.monotonic()
                if is_enough(result) or left <= 0 or self.signals.closed or not is_there():
                    return result
                wakeup.wait(min(left, output.POLL_SECONDS))

    def prune(self, now_ms: int) -> int:
        ids = self.store.write(writes.prune, iso(now_ms - KEPT_DAYS * DAY_MS), KEPT_RUNS)
        for run_id in ids:
            in_thread(shutil.rmtree, self._kept / run_id, True)
        return len(ids)

"""Runs the jobs' loops: starts and ends attempts, asks before runs, and starts jobs after
events."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import msgspec

from appliance.jobs import queries, wire, writes
from appliance.jobs.attempts import Attempts
from appliance.jobs.handles import EVENT
from appliance.jobs.service import Jobs
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Forbidden, Invalid, Missing, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.wakeup import Wakeup

IDLE_SECONDS = 30.0
WORKING_SECONDS = 10.0  # between two heartbeats
RETRY_SECONDS = 1.0
POLL_SECONDS = 5.0  # between two looks at sources that wake nobody
EVENTS_MAX = 500
ANSWER_SECONDS = 2.0  # between two looks for answers


class JobsLoop(Loop):
    """A loop whose first round comes at once, because something may have happened before."""

    def __init__(self, jobs: Jobs, work: Wakeup, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=work)
        self._jobs = jobs
        self._store = jobs.store
        self._signals = jobs.signals
        self.nudge()


class AttemptLoop(JobsLoop):
    """Creates the runs that are due, starts and ends attempts. New runs and ended attempts wake
    the loop. Waits use the steady clock."""

    name = "jobs"
    shortest_seconds = 0.02

    def __init__(self, jobs: Jobs, attempts: Attempts, clock: Clock, log: Log) -> None:
        super().__init__(jobs, jobs.signals.work, clock, log)
        self._attempts = attempts
        self._scheduled_version = 0

    def run_once(self, now_ms: int) -> dict[str, int]:
        attempts, steady = self._attempts, self._jobs.steady
        self.interval_seconds = RETRY_SECONDS
        try:
            clock_was_set = steady.note()
            counts = {"ended": attempts.store_ends(), "lost": attempts.lose_former()}
            counts["created"] = self._create_due(now_ms, clock_was_set)
            if counts["created"] or counts["ended"]:  # further jobs may follow
                self._signals.asks.set()
            began_ms = steady.now_ms()
            counts["started"] = attempts.start_due()
            attempts.end_cancelled()
            attempts.renew()
            due = self._store.read(queries.next_due, began_ms)
        except Unavailable:  # the disk is full: everything stays due
            return {"refused": 1}
        seconds = WORKING_SECONDS if attempts.is_working else IDLE_SECONDS
        self.interval_seconds = min(seconds, self._jobs.scheduler.seconds_left(now_ms))
        if due is not None:
            left = max(0, due - steady.now_ms()) / 1000
            self.interval_seconds = min(left, self.interval_seconds)
        return counts

    def _create_due(self, now_ms: int, clock_was_set: bool) -> int:
        """Create the runs that are due by their schedule, and return how many."""
        catalogue, scheduler = self._jobs.catalogue, self._jobs.scheduler
        catalogue.refresh()
        if clock_was_set or catalogue.version != self._scheduled_version:
            self._scheduled_version = catalogue.version
            scheduler.refresh(now_ms)
            self._signals.triggers.set()
        return scheduler.create_due(now_ms)


class JobAsks(Protocol):
    """Questions to people, passed in by `builders.py`."""

    def ask(self, run_id: str, job: str, ask: wire.AskBefore) -> str:
        """Return the ask's id, which is stable for a run."""

    def answer(self, ask_id: str) -> str | None:
        """Return the answer; None while nobody has answered; "" if the ask ended without an
        answer."""

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after asks were answered or ended."""


class JobAsker(JobsLoop):
    """Asks before runs start, and looks for the answers."""

    name = "jobs_asker"

    def __init__(self, jobs: Jobs, asks: JobAsks, clock: Clock, log: Log) -> None:
        super().__init__(jobs, jobs.signals.asks, clock, log)
        self._asks = asks
        asks.listen(self.nudge)

    def run_once(self, now_ms: int) -> dict[str, int]:
        store, settled = self._store, 0
        waiting = store.read(queries.waiting)
        self.interval_seconds = ANSWER_SECONDS if waiting else IDLE_SECONDS
        for run in waiting:
            before = msgspec.json.decode(run.spec, type=wire.JobSpec).ask
            if before is None:
                continue
            if run.ask_id is None:
                ask_id = self._asks.ask(run.id, run.job, before)
                store.write(writes.update, run.id, {"ask_id": ask_id})
                continue
            answer = self._asks.answer(run.ask_id)
            if answer is not None:
                granted = answer == before.choices[0]
                reason = f"the answer was {answer!r}" if answer else "nobody has answered"
                store.write(writes.settle_ask, run.id, granted, reason)
                settled += 1
                self._signals.work.set()
        return {"settled": settled}


class JobEvent(NamedTuple):
    """An event that may start jobs. `number` rises within its source. `where`: channel, mesh,
    stream or log. `principal`: the caller behind a hub event."""

    number: int
    name: str
    where: str | None
    principal: str | None = None


class JobEvents(Protocol):
    """An event source, as `builders.py` passes it."""

    source: str
    key: str  # names its position in the store

    def newest(self) -> int: ...
    def after(self, number: int, limit: int) -> Sequence[JobEvent]: ...
    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after new events, if the source can; otherwise the events are polled."""


class TriggerLoop(JobsLoop):
    """Starts jobs after events. A position and the runs behind it are stored together, so a
    crash neither loses an event nor repeats one."""

    name = "jobs_triggers"
    shortest_seconds = 0.02

    def __init__(self, jobs: Jobs, sources: Sequence[JobEvents], clock: Clock, log: Log) -> None:
        super().__init__(jobs, jobs.signals.triggers, clock, log)
        self._sources = sources
        self._version = -1  # the jobs' version in the last round
        for source in sources:
            source.listen(self._wake)

    def _wake(self) -> None:
        """Start a round, unless no present job starts on events."""
        if self.interval_seconds != IDLE_SECONDS or self._version != self._jobs.catalogue.version:
            self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._version = self._jobs.catalogue.version
        specs, created = self._jobs.catalogue.specs.items(), 0
        self.interval_seconds = IDLE_SECONDS
        for source in self._sources:
            wanted = [
                (name, spec, trigger)
                for name, spec in specs
                for trigger in spec.on
                if trigger.source == source.source
            ]
            if wanted:
                self.interval_seconds = POLL_SECONDS
                created += self._read(source, wanted)
        if created:
            self._signals.note_created()
        return {"created": created}

    def _read(
        self, source: JobEvents, wanted: Sequence[tuple[str, wire.JobSpec, wire.Trigger]]
    ) -> int:
        key, store = source.key, self._store
        position = store.read(queries.position, writes.POSITION + key)
        if position is None:
            store.write(writes.note_events, key, source.newest(), [])
            return 0
        events = source.after(position, EVENTS_MAX)
        if not events:
            return 0
        runs: dict[str, tuple[writes.NewRun, float]] = {}
        for event in events:
            for name, spec, trigger in wanted:
                is_own = event.principal == principal_of(name)
                if name not in runs and _matches(trigger, event) and trigger.own_events >= is_own:
                    runs[name] = _run_of(name, spec, key, event), trigger.debounce_seconds
        if len(events) == EVENTS_MAX:
            self.nudge()
        created: int = store.write(writes.note_events, key, events[-1].number, list(runs.values()))
        return created


def _run_of(job: str, spec: wire.JobSpec, key: str, event: JobEvent) -> writes.NewRun:
    """Return the run that an event starts, with the event in its environment."""
    content = msgspec.json.encode({"source": key.partition(" ")[0], **event._asdict()}).decode()
    spec = msgspec.structs.replace(spec, environment={**spec.environment, EVENT: content})
    detail = f"{key} {event.name} {event.where or ''} {event.number}"
    return writes.NewRun(job, spec, "event", " ".join(detail.split())[:300])


def principal_of(job: str) -> str:
    """Return the name under which a job's runs act, and their outcomes are posted."""
    return f"job:{job}"


def _matches(trigger: wire.Trigger, event: JobEvent) -> bool:
    is_place = trigger.where is None or fnmatchcase(event.where or "", trigger.where)
    return is_place and fnmatchcase(event.name, trigger.event)


PostOutcome = Callable[[str, str, str, str], None]
"""Posts to the hub: run id, topic, text and principal. Posts once per run. Raises the hub's
errors."""


class OutcomePoster(JobsLoop):
    """Posts outcomes to topics. A post after a crash has the first one's key."""

    name = "jobs_poster"
    interval_seconds = IDLE_SECONDS

    def __init__(self, jobs: Jobs, post: PostOutcome, clock: Clock, log: Log) -> None:
        super().__init__(jobs, jobs.signals.outcomes, clock, log)
        self._post = post

    def run_once(self, now_ms: int) -> dict[str, int]:
        store = self._store
        runs = store.read(queries.unposted_runs)
        for run in runs:
            topic = msgspec.json.decode(run.spec, type=wire.JobSpec).topic or ""
            reason = f": {run.error}" if run.error else ""
            text = f"job {run.job} {run.state}{reason} ({run.id})"
            try:
                self._post(run.id, topic, text, principal_of(run.job))
            except (Missing, Invalid, Forbidden) as error:  # would be refused each time
                self.log.warning("an outcome was not posted", run=run.id, code=error.code)
            store.write(writes.update, run.id, {"posted": 1})
        return {"posted": len(runs)}

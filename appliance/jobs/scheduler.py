"""Creates the runs that are due by their schedule."""

import msgspec

from appliance.jobs import metrics, queries, wire, writes
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.rows import StoredJobRow
from appliance.jobs.schedule import continue_from, due_cron, next_ms
from appliance.kernel.clock import DAY_MS, iso
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store


class DueTime(msgspec.Struct, frozen=True):
    """A job's next due time: by the wall clock (cron), or by the steady clock (interval)."""

    ms: int
    is_steady: bool

    def left_ms(self, now_ms: int, steady_ms: int) -> int:
        return self.ms - (steady_ms if self.is_steady else now_ms)


class Scheduler:
    """Creates due runs. The store has the moments from which schedules continue, so a restart
    neither repeats a time nor loses one. Only the next due times are in memory."""

    def __init__(self, store: Store, catalogue: JobCatalogue, steady: SteadyClock) -> None:
        self._store = store
        self._catalogue = catalogue
        self._steady = steady
        self._marks: dict[str, StoredJobRow] = {}
        self._due: dict[str, DueTime] = {}

    def refresh(self, now_ms: int) -> None:
        """Plan again; call at the start, and after jobs or the clock changed."""
        self._due.clear()
        self._marks = {row.name: row for row in self._store.read(queries.stored_jobs)}
        for name, spec in self._catalogue.specs.items():
            if spec.cron is None and spec.interval_seconds is None:
                continue
            mark = self._marks.get(name)
            if mark is None:
                mark = StoredJobRow(name, None, None, now_ms, self._steady.now_ms())
                self._store.write(writes.note_schedule, mark, None)
                self._marks[name] = mark
            self._due[name] = _next(spec, mark, now_ms)

    def next_at(self, name: str) -> str | None:
        """Return when the job is due next."""
        due = self._due.get(name)
        if due is None:
            return None
        return self._steady.wall_iso(due.ms) if due.is_steady else iso(due.ms)

    def create_due(self, now_ms: int) -> int:
        """Create the runs that are due now, at most one for each job, and return how many."""
        steady_ms, created = self._steady.now_ms(), 0
        for name, due in list(self._due.items()):
            if due.left_ms(now_ms, steady_ms) <= 0:
                spec = self._catalogue.find(name)
                created += self._create(name, spec, now_ms, steady_ms)
                self._due[name] = _next(spec, self._marks[name], now_ms)
        return created

    def seconds_left(self, now_ms: int) -> float:
        """Return the seconds until the next job is due."""
        steady_ms = self._steady.now_ms()
        left = [due.left_ms(now_ms, steady_ms) for due in self._due.values()]
        return max(0, min(left, default=DAY_MS)) / 1000

    def _create(self, name: str, spec: wire.JobSpec, now_ms: int, steady_ms: int) -> bool:
        mark, detail = self._marks[name], None
        if spec.cron is None:
            mark = mark._replace(interval_from_steady_ms=steady_ms)
        else:
            instant, from_ms = due_cron(
                spec.cron, spec.time_zone, mark.cron_from_ms, now_ms, spec.catch_up
            )
            mark = mark._replace(cron_from_ms=from_ms)
            detail = None if instant is None else iso(instant)
        is_wanted = spec.cron is None or detail is not None
        new = writes.NewRun(name, spec, "schedule", detail) if is_wanted else None
        run_id = self._store.write(writes.note_schedule, mark, new)
        self._marks[name] = mark
        if new is not None and run_id is None:
            metrics.skipped.inc()
        return run_id is not None


def _next(spec: wire.JobSpec, mark: StoredJobRow, now_ms: int) -> DueTime:
    if spec.cron is None:
        assert spec.interval_seconds is not None
        interval_ms = int(spec.interval_seconds * 1000)
        return DueTime(mark.interval_from_steady_ms + interval_ms, is_steady=True)
    after_ms = continue_from(mark.cron_from_ms, now_ms)
    (due_ms,) = next_ms(spec.cron, spec.time_zone, after_ms, 1)
    return DueTime(due_ms, is_steady=False)

"""The loop that starts and ends attempts, and waits for the next one that is due."""

from appliance.jobs import queries
from appliance.jobs.runner import JobRunner
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 30.0
WORKING_SECONDS = 10.0  # between two heartbeats
RETRY_SECONDS = 1.0


class JobLoop(Loop):
    """Woken by new runs and ended attempts. Waits are times of the steady clock."""

    name = "jobs"
    shortest_seconds = 0.02

    def __init__(self, runner: JobRunner, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=runner.work)
        self._runner = runner
        self.nudge()  # attempts may have been lost, and runs have become due

    def run_once(self, now_ms: int) -> dict[str, int]:
        runner = self._runner
        self.interval_seconds = RETRY_SECONDS
        try:
            clock_was_set = runner.steady.note()
            counts = {"ended": runner.store_ends(), "lost": runner.lose_former()}
            counts["created"] = runner.schedule(now_ms, clock_was_set=clock_was_set)
            counts["started"] = runner.start_due()
            runner.renew()
            due = runner.store.read(queries.next_due)
        except Unavailable:  # the disk is full: everything stays due
            return {"refused": 1}
        if runner.is_working:
            self.interval_seconds = WORKING_SECONDS
        else:
            self.interval_seconds = IDLE_SECONDS
        self.interval_seconds = min(self.interval_seconds, runner.scheduler.seconds_left(now_ms))
        if due is not None:
            left = (due - runner.steady.now_ms()) / 1000
            if left > 0:
                self.interval_seconds = min(left, self.interval_seconds)
        return counts

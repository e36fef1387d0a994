"""The loop that starts and ends attempts, and waits for the next one that is due."""

from typing import Protocol

import msgspec

from appliance.jobs import queries, wire, writes
from appliance.jobs.runner import JobRunner
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 30.0
WORKING_SECONDS = 10.0  # between two heartbeats
RETRY_SECONDS = 1.0
ANSWER_SECONDS = 2.0  # between two looks for answers


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
            runner.end_cancelled()
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


class JobAsks(Protocol):
    """Asks, passed in by `composition.py`."""

    def ask(self, run_id: str, job: str, ask: wire.AskBefore) -> str:
        """The id of the ask; the same run has the same one."""

    def answer(self, ask_id: str) -> str | None:
        """None while nobody has answered; "" if it ended without an answer."""


class JobAsker(Loop):
    """Asks before runs start, and looks for the answers."""

    name = "jobs_asker"

    def __init__(self, runner: JobRunner, asks: JobAsks, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=runner.asks)
        self._runner = runner
        self._asks = asks
        self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        store, settled = self._runner.store, 0
        waiting = store.read(queries.waiting)
        self.interval_seconds = ANSWER_SECONDS if waiting else IDLE_SECONDS
        for run in waiting:
            before = msgspec.json.decode(run.spec, type=wire.JobSpec).ask
            if before is None:
                continue
            if run.ask_id is None:
                ask_id = self._asks.ask(run.id, run.job, before)
                store.write(writes.note_ask, run.id, ask_id)
                continue
            answer = self._asks.answer(run.ask_id)
            if answer is not None:
                granted = answer == before.choices[0]
                reason = f"the answer was {answer!r}" if answer else "nobody has answered"
                store.write(writes.settle_ask, run.id, granted, reason)
                settled += 1
                self._runner.work.set()
        return {"settled": settled}

"""Ends pauses whose time is over, and asks people about topics that agents filled."""

from appliance.hub import pausing
from appliance.hub.bounds.service import Bounds
from appliance.hub.deadlines import DeadlineLoop
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log

ANSWER_SECONDS = 1.0  # between two looks for an answer


class PauseDeadlines(DeadlineLoop):
    name = "pause_deadlines"

    def __init__(self, bounds: Bounds, clock: Clock, log: Log) -> None:
        super().__init__(bounds.hub, clock, log, bounds.changed)
        self._bounds = bounds

    def next_due(self) -> int | None:
        due: int | None = self._bounds.store.read(pausing.next_due)
        return due

    def handle(self) -> int:
        return self._bounds.end_due()

    def run_once(self, now_ms: int) -> dict[str, int]:
        asked = self._bounds.ask_people(self._bounds.refresh())
        counts = super().run_once(now_ms)
        if asked:
            self.interval_seconds = min(self.interval_seconds, ANSWER_SECONDS)
        return counts

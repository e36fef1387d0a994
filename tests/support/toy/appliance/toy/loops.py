"""Background work on notes: counts them."""

from appliance.toy.service import Toy

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop


class NoteCounter(Loop):
    name = "toy_counter"
    interval_seconds = 60.0

    def __init__(self, toy: Toy, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._toy = toy
        self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"notes": len(self._toy.notes().notes)}

"""Keeps a store's write-ahead log short, in the background."""

from collections.abc import Callable

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.wakeup import Wakeup


class Checkpointer(Loop):
    """A loop owned by a store, which wakes the loop after CHECKPOINT_JOBS writes. Also runs once
    a minute."""

    name = "checkpointer"
    interval_seconds = 60.0
    shortest_seconds = 0.25

    def __init__(self, checkpoint: Callable[[], bool], due: Wakeup, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=due)
        self._checkpoint = checkpoint

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"checkpoints": int(self._checkpoint())}

"""The places in which hooks run, and the end of grants."""

from appliance.hooks.service import Hooks
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 1.0


class Runner(Loop):
    """One of the places: takes a run, works on it, takes the next."""

    name = "hook_runner"
    interval_seconds = 0.001

    def __init__(self, hooks: Hooks, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._hooks = hooks

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._hooks.signal.clear()
        job = self._hooks.take()
        if job is None:
            self._hooks.signal.wait(IDLE_SECONDS)
            return {"runs": 0}
        try:
            self._hooks.work(job)
        except Unavailable as error:
            self.log.warning("a hook was not run: its row can't be written", code=error.code)
        return {"runs": 1}


class GrantKeeper(Loop):
    name = "hook_grants"
    interval_seconds = 30.0

    def __init__(self, hooks: Hooks, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._hooks = hooks

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"forgotten": self._hooks.forget_grants(now_ms)}

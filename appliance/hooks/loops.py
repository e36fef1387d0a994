"""Runners of hooks."""

from appliance.hooks.service import HookService
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

IDLE_SECONDS = 1.0
AT_ONCE_MAX = 8  # concurrent runs: each is a process


class HookRunner(Loop):
    """Runs one hook at a time; there are AT_ONCE_MAX of these."""

    name = "hook_runner"
    interval_seconds = 0.001

    def __init__(self, hooks: HookService, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._hooks = hooks

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._hooks.wakeup.clear()
        job = self._hooks.next_job()
        if job is None:
            self._hooks.wakeup.wait(IDLE_SECONDS)
            return {"runs": 0}
        try:
            self._hooks.run_job(job)
        except Unavailable as error:
            self.log.warning("a hook was not run: the run can't be recorded", code=error.code)
        return {"runs": 1}

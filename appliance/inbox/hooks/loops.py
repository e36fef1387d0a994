"""Runs hooks in loops."""

from appliance.inbox.hooks.service import HookService
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop

AT_ONCE_MAX = 8  # concurrent runs: each is a process


class HookRunner(Loop):
    """Runs one hook at a time; the appliance has AT_ONCE_MAX runners."""

    name = "hook_runner"

    def __init__(self, hooks: HookService, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, hooks.wakeup)
        self._hooks = hooks

    def run_once(self, now_ms: int) -> dict[str, int]:
        try:
            job = self._hooks.next_job()
            if job is None:
                return {"runs": 0}
            self.nudge()  # there may be more, also for further runners
            self._hooks.run_job(job)
        except Unavailable as error:
            self.log.warning("a hook was not run: the run can't be recorded", code=error.code)
        return {"runs": 1}

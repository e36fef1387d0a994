"""Takes a sample each hour."""

from appliance.forecast.service import GrowthSamples
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.threads import in_thread


class GrowthSampler(Loop):
    name = "growth_sampler"
    interval_seconds = HOUR_MS / 1000

    def __init__(self, samples: GrowthSamples, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._samples = samples
        self.nudge()  # the first sample is at the start

    def run_once(self, now_ms: int) -> dict[str, int]:
        try:
            in_thread(self._samples.sample, now_ms)
        except OSError as error:  # a full disk: the sample is kept in memory
            self.log.debug("growth.json was not written", reason=error.strerror)
        return {"samples": 1}

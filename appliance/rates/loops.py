"""Takes the samples."""

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.rates.service import INTERVAL_SECONDS, RecentRates


class Sampler(Loop):
    name = "rates_sampler"
    interval_seconds = INTERVAL_SECONDS
    runs_read_only = True

    def __init__(self, rates: RecentRates, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._rates = rates

    def run_once(self, now_ms: int) -> dict[str, int]:
        self._rates.sample(now_ms)
        return {"samples": 1}

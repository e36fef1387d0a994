"""Rates and lags as a part of the appliance. They are kept whichever roles are on."""

from functools import partial

from appliance.host import Host
from appliance.kernel.metrics import REGISTRY
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.rates.loops import Sampler
from appliance.rates.metrics import totals
from appliance.rates.resources import routes
from appliance.rates.service import RecentRates


class RatesSubsystem(Subsystem):
    name = "rates"

    def __init__(self, host: Host) -> None:
        self._clock = host.clock
        self._rates = RecentRates(partial(totals, REGISTRY), host.clock.monotonic)
        self.loops = (Sampler(self._rates, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._rates)

    def start(self) -> None:
        self._rates.sample(self._clock.now_ms())  # so that the first round has a rate

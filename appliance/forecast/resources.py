"""The HTTP route of the forecast."""

from collections.abc import Callable
from typing import Any

import falcon

from appliance.forecast.wire import Forecast
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply

READ = "metrics:read"


class ForecastResource:
    def __init__(self, forecast: Callable[[], Forecast]) -> None:
        self._forecast = forecast

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        del req
        reply(resp, self._forecast())


def routes(forecast: Callable[[], Forecast]) -> list[Route]:
    return [
        Route("/api/v1/forecast", ForecastResource(forecast), {
            "GET": Operation(READ, reply=Forecast,
                             summary="When disks will be full, and what can be reduced"),
        }),
    ]  # fmt: skip

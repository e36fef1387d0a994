"""The HTTP route of the forecast."""

from collections.abc import Callable

from appliance.forecast.wire import Forecast
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_with

READ = "metrics:read"


def routes(forecast: Callable[[], Forecast]) -> list[Route]:
    return [
        Route("/api/v1/forecast", Responders(get=reply_with(forecast)), {
            "GET": Operation(READ, reply=Forecast,
                             summary="When disks will be full, and what can be reduced"),
        }),
    ]  # fmt: skip

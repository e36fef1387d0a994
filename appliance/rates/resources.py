"""The HTTP route of rates and lags."""

from typing import Any

import falcon

from appliance.kernel.route import Operation, Route
from appliance.rates.service import RecentRates
from appliance.rates.wire import Rates, RatesQuery
from appliance.web.media import reply

READ = "metrics:read"


class RatesResource:
    def __init__(self, rates: RecentRates) -> None:
        self._rates = rates

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._rates.rates(req.context.query.after))


def routes(rates: RecentRates) -> list[Route]:
    return [
        Route("/api/v1/rates", RatesResource(rates), {
            "GET": Operation(READ, query=RatesQuery, reply=Rates,
                             summary="List rates and lags of the last hour, every 10 seconds"),
        }),
    ]  # fmt: skip

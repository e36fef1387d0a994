"""The HTTP route of rates and lags."""

from appliance.kernel.route import Operation, Route
from appliance.rates.service import RecentRates
from appliance.rates.wire import Rates, RatesQuery
from appliance.web.responders import Responders, reply_with

READ = "metrics:read"


def routes(rates: RecentRates) -> list[Route]:
    return [
        Route("/api/v1/rates", Responders(
            get=reply_with(lambda query: rates.rates(query.after)),
        ), {
            "GET": Operation(READ, query=RatesQuery, reply=Rates,
                             summary="List rates and lags of the last hour, every 10 seconds"),
        }),
    ]  # fmt: skip

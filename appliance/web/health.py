"""Serves `/-/healthy`, `/-/ready` and `/metrics`, for monitoring.

Healthy means that the process responds. Ready is the doctor's result, so the probe and the doctor
agree.
"""

from collections.abc import Callable
from typing import Any

import falcon
import msgspec

from appliance.kernel.auth import ANONYMOUS
from appliance.kernel.metrics import REGISTRY
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.exposition import Exposition
from appliance.web.guard import Guard
from appliance.web.media import reply, reply_bytes
from appliance.web.responders import Responders, reply_with

READ_DOCTOR = "doctor:read"
"""The scope for the doctor's report. Only `admin` includes this scope, because findings reveal
weaknesses."""


class Alive(msgspec.Struct, frozen=True):
    """The process responds."""

    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """The readiness. Only callers on this machine or with a token see more than `ready`.

    failing    the checks because of which it is not ready
    suspended  damaged stores that are not served, while other stores are: found at the start, or
               while in use
    """

    status: str
    ready: bool
    failing: list[str]
    suspended: list[str] = []
    instance_id: str = ""
    findings: list[dict[str, Any]] | None = None
    facts: dict[str, float] | None = None


class ReadyResource:
    """200 if ready, otherwise 503.

    Failing checks and details are only for callers on this machine or with a token, because they
    reveal weaknesses. Requests through a proxy need a token for them.
    """

    def __init__(self, guard: Guard, readiness: Callable[[], Readiness]) -> None:
        self._guard = guard
        self._readiness = readiness

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        readiness = self._readiness()
        if req.context.principal is ANONYMOUS and not self._guard.reveals(req.env):
            readiness = Readiness(readiness.status, readiness.ready, [])
        reply(resp, readiness, 200 if readiness.ready else 503)


class MetricsResource:
    """As Prometheus text, or as OpenMetrics if requested."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._exposition = Exposition(REGISTRY, monotonic)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        text, media, _ = self._exposition.read(req.env.get("HTTP_ACCEPT", ""))
        reply_bytes(resp, text, media=media)


def routes(
    guard: Guard, readiness: Callable[[], Readiness], monotonic: Callable[[], float]
) -> list[Route]:
    alive = Operation(OPEN, "Check that the process responds", reply=Alive, probe=True)
    served = Operation(OPEN, "Check that the appliance is ready", reply=Readiness, probe=True)
    scraped = Operation("metrics:read", "Metrics for Prometheus", media="text/plain")
    return [
        Route("/-/healthy", Responders(get=reply_with(Alive)), {"GET": alive}),
        Route("/-/ready", ReadyResource(guard, readiness), {"GET": served}),
        Route("/metrics", MetricsResource(monotonic), {"GET": scraped}),
    ]

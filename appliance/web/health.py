"""`/-/healthy`, `/-/ready` and `/metrics`: what an operator's machines ask.

Healthy means that the process turns. Ready is the verdict of the table of checks it was
given: the doctor's, so that doctor and probe can't disagree.
"""

import platform
from collections.abc import Callable
from typing import Any

import falcon
import msgspec
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

import appliance
from appliance.kernel.auth import ANONYMOUS
from appliance.kernel.metrics import REGISTRY, gauge
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.guard import Guard
from appliance.web.media import reply, reply_bytes


class Verdict(msgspec.Struct, frozen=True):
    """What the table of checks says: `failing` names the checks that make it not ready.

    `suspended` names stores that are damaged and not served, while the others are.
    `failing`, `suspended` and `details` (instance, findings, facts) are shown to callers on this
    machine or with a token.
    """

    ready: bool
    failing: list[str]
    details: dict[str, Any]
    suspended: list[str] = []


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether requests are served. Which checks say no, and the rest, is shown on this machine and
    to callers with a token."""

    status: str
    ready: bool
    failing: list[str]
    suspended: list[str] = []
    instance_id: str = ""
    findings: list[dict[str, Any]] | None = None
    facts: dict[str, float] | None = None


class Healthy:
    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        reply(resp, Alive())


class Ready:
    """200 when the verdict is ready, else 503 naming the checks that failed.

    Which checks failed, and why, is for this machine or for a caller with a token: it would tell a
    stranger what is weak. Behind a proxy everybody is a stranger.
    """

    def __init__(self, guard: Guard, verdict: Callable[[], Verdict]) -> None:
        self._guard = guard
        self._verdict = verdict

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        verdict = self._verdict()
        near = req.context.principal is not ANONYMOUS or self._guard.is_local(req.env)
        body = Readiness(
            "ready" if verdict.ready else "not ready",
            verdict.ready,
            verdict.failing if near else [],
            verdict.suspended if near else [],
            **(verdict.details if near else {}),
        )
        reply(resp, body, 200 if verdict.ready else 503)


class Metrics:
    """The registry as Prometheus text, or OpenMetrics when asked for."""

    def __init__(self) -> None:
        _add_process_metrics()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        encode, media = choose_encoder(req.env.get("HTTP_ACCEPT", ""))
        reply_bytes(resp, encode(REGISTRY), media=media)


def routes(guard: Guard, verdict: Callable[[], Verdict]) -> list[Route]:
    alive = Operation(OPEN, "The process turns", reply=Alive, probe=True)
    served = Operation(OPEN, "Every readiness check passes", reply=Readiness, probe=True)
    scraped = Operation("metrics:read", "Metrics as Prometheus or OpenMetrics", media="text/plain")
    return [
        Route("/-/healthy", Healthy(), {"GET": alive}),
        Route("/-/ready", Ready(guard, verdict), {"GET": served}),
        Route("/metrics", Metrics(), {"GET": scraped}),
    ]


def _add_process_metrics() -> None:
    """Memory, descriptors, garbage collection, build: once for the one registry."""
    if "agentlip_build_info" in REGISTRY._names_to_collectors:
        return
    ProcessCollector(registry=REGISTRY)
    GCCollector(registry=REGISTRY)
    PlatformCollector(registry=REGISTRY)
    build = gauge("build_info", "The running version; always 1", ("version", "python"))
    build.labels(appliance.__version__, platform.python_version()).set(1)

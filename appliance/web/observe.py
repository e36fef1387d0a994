"""Middleware for all requests: request id, duration, log line, and common headers."""

import re
from typing import Any

import falcon

from appliance.kernel import caller
from appliance.kernel.clock import Clock
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.metrics import counter, gauge, histogram
from appliance.shared import traceparent

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
STREAM = "text/event-stream"
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_latency = histogram(
    "http_request_seconds",
    "Time from a request to its response, or until a stream begins",
    ("method", "route", "transport"),  # a status would give each route fifteen more series
)
_responses = counter(
    "http_responses_total", "Responses", ("method", "route", "transport", "status")
)
_in_flight = gauge("http_requests_in_flight", "Requests in progress")
_safe_id = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch


class Response(falcon.Response):
    """A response that starts with the common headers.

    Falcon stores headers under lowercase names in `_headers`. Writing there instead of calling
    set_header ten times saves several microseconds per request.
    """

    __slots__ = ()

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._headers: dict[str, str] = HEADERS.copy()

    def stamp(self, headers: dict[str, str]) -> None:
        """Set headers with lowercase names and safe values, without validation."""
        self._headers.update(headers)


class ObserveMiddleware:
    """The outermost middleware. `access`: errors, all or off."""

    def __init__(self, log: Log, clock: Clock, instance_id: str, access: str = "errors") -> None:
        self._log = log
        self._monotonic = clock.monotonic
        self._instance_id = instance_id
        self._access = access
        self._prefix = random_id()[:16]
        self._count = 0
        self.in_flight = 0
        _in_flight.set_function(lambda: self.in_flight)

    def process_request(self, req: falcon.Request, _resp: Response) -> None:
        context = req.context
        context.started_at = self._monotonic()
        self._count += 1
        given = req.env.get("HTTP_X_REQUEST_ID", "")
        context.request_id = given if _safe_id(given) else f"{self._prefix}{self._count:08x}"
        context.ids = {"request_id": context.request_id}
        trace = traceparent.parse(req.env.get("HTTP_TRACEPARENT"))
        if trace is not None:
            context.ids["traceparent"] = trace
        caller.request.set(context.ids)
        context.allowance = None
        context.method = req.method
        if req.method == "HEAD":
            req.method = "GET"  # GET's response; the body is dropped
        self.in_flight += 1

    def process_response(
        self, req: falcon.Request, resp: Response, _resource: object, _succeeded: bool
    ) -> None:
        context = req.context
        self.in_flight -= 1
        req.method = method = context.method
        if method == "HEAD":  # stream not read
            getattr(resp.stream, "close", lambda: None)()
        headers = {"x-request-id": context.request_id, "x-instance-id": self._instance_id}
        allowance = context.allowance
        if allowance is not None:
            headers["x-ratelimit-limit"] = str(allowance.limit)
            headers["x-ratelimit-remaining"] = str(allowance.remaining)
            headers["x-ratelimit-reset"] = allowance.reset_iso
        resp.stamp(headers)
        seconds = self._monotonic() - context.started_at
        status = str(resp.status)[:3]
        label = method if method in METHODS else "other"
        route = req.uri_template or UNMATCHED
        stream = resp.content_type == STREAM
        transport = "mcp" if route == "/mcp" else "sse" if stream else "http"
        _latency.labels(label, route, transport).observe(seconds)
        _responses.labels(label, route, transport, status).inc()
        connection = req.env.get("agentlip.connection")
        waited = connection is not None and connection.waited
        slow = seconds >= self._log.slow_seconds and not waited
        if slow or self._access == "all" or (self._access == "errors" and status >= "400"):
            self._write(req, status, seconds, slow)

    def _write(self, req: falcon.Request, status: str, seconds: float, slow: bool) -> None:
        context = req.context
        principal = getattr(context, "principal", None)
        write = self._log.warning if slow else self._log.info
        write(
            "slow request" if slow else "request",
            method=context.method if context.method in METHODS else "other",
            route=req.uri_template or UNMATCHED,
            status=int(status),
            ms=round(seconds * 1000, 2),
            principal_id=principal.id if principal is not None else None,
            address=getattr(context, "address", req.env.get("REMOTE_ADDR", "")),
            code=getattr(context, "error_code", None),
        )

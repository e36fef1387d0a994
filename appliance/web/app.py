"""The Falcon app: routes, the three middlewares around them, and what every failure says.

The order: Observe is outermost, so that refusals are counted and logged too. AccessMiddleware comes
next, before routing: host, credential and rate, in that order, so that an unknown path is
limited like a known one. After routing it asks for the scope, and only then Body reads
what the caller sent.
"""

from collections.abc import Sequence
from typing import Any

import falcon

from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.clock import Clock
from appliance.kernel.errors import (
    ApplianceError,
    Forbidden,
    Invalid,
    Unauthenticated,
    Unavailable,
)
from appliance.kernel.log import Log
from appliance.kernel.route import SIGNATURE, Absent, Operation, Route, check_routes
from appliance.web import errors
from appliance.web.body import BodyPlan, QueryPlan, check_params, idempotency_key
from appliance.web.guard import Guard
from appliance.web.limits import GLOBAL, UNAUTHENTICATED, RateLimited, RateLimiter
from appliance.web.observe import Observe, Response
from appliance.web.settings import HttpSettings
from appliance.web.unsent import LARGE_BYTES, UnsentBudget

SCRAPE = "metrics:read"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
App = falcon.App[falcon.Request, Response]


class Mounted:
    """An operation with everything that can be prepared before the first request."""

    __slots__ = (
        "body", "by_channel", "cost", "keyed", "operation", "query", "same_origin", "scope",
        "signer",
    )  # fmt: skip

    def __init__(self, method: str, operation: Operation, settings: HttpSettings) -> None:
        bytes_max = settings.batch_bytes_max if operation.batch else settings.body_bytes_max
        self.operation = operation
        self.scope = operation.scope
        self.query = QueryPlan(operation.query)
        self.body = (
            None if operation.body is None else BodyPlan(operation.body, bytes_max, operation.each)
        )
        self.cost = operation.cost
        self.by_channel = operation.by_channel
        self.signer = operation.signer
        self.keyed = operation.keyed
        self.same_origin = method not in READING or operation.same_origin


class Place:
    """A mounted path: its operations by method, and the Allow header of all of them."""

    __slots__ = ("allow", "operations")

    def __init__(self, route: Route, settings: HttpSettings) -> None:
        self.operations = {
            method: Mounted(method, operation, settings)
            for method, operation in route.operations.items()
        }
        extra = {"OPTIONS"} | ({"HEAD"} if "GET" in self.operations else set())
        self.allow = sorted(set(self.operations) | extra)


class AccessMiddleware:
    """Middleware that lets requests in: host, credential, rate; then scope and origin."""

    def __init__(
        self, guard: Guard, limiter: RateLimiter, places: dict[str, Place], probes: frozenset[str]
    ) -> None:
        self._guard = guard
        self._limiter = limiter
        self._places = places
        self._probes = probes

    def process_request(self, req: falcon.Request, _resp: Response) -> None:
        environ, context, guard = req.env, req.context, self._guard
        probe = req.path in self._probes
        if not probe or guard.loopback:
            guard.check_host(environ)
        context.principal = ANONYMOUS
        context.idempotency_key = context.query = context.raw_body = None
        context.address = address = guard.address(environ)
        context.refused = None
        try:
            context.principal = guard.authenticate(environ)
        except ApplianceError as error:
            if isinstance(error, Unauthenticated):
                self._limiter.fail(address)
            if not probe:
                self._count(context, environ, address)
            raise
        if not probe:
            try:
                self._count(context, environ, address)
            except RateLimited as error:
                # A signature is verified after routing, and may still show who is asking.
                if error.which != UNAUTHENTICATED or SIGNATURE not in environ:
                    raise
                context.refused = error

    def process_resource(
        self, req: falcon.Request, resp: Response, _resource: object, _params: dict[str, Any]
    ) -> None:
        place = self._places[req.uri_template or ""]
        mounted = place.operations.get(req.method)
        if mounted is None:
            self._answer_other(req, resp, place)
            return
        principal: Principal = req.context.principal
        if mounted.signer is not None and principal is ANONYMOUS:
            principal = req.context.principal = self._signed(req, mounted)
        elif req.context.refused is not None:
            raise req.context.refused
        self._guard.admit(principal, mounted.scope, req.env)
        if principal.channels is not None and not mounted.by_channel:
            _refuse_limited(principal, mounted.scope)
        if mounted.same_origin:
            self._guard.check_origin(req.env)
        req.context.mounted = mounted
        connection = req.env.get("agentlip.connection")
        if connection is not None:  # kept in a full pool
            connection.authenticated = principal is not ANONYMOUS

    def _signed(self, req: falcon.Request, mounted: Mounted) -> Principal:
        """Who signed the request. It was counted as one without a token until now."""
        context, limiter = req.context, self._limiter
        refused: RateLimited | None = context.refused
        try:
            principal = _signer(req, mounted)
        except (Unauthenticated, Forbidden):
            if refused is None:
                try:
                    limiter.fail(context.address)
                except RateLimited:
                    limiter.uncount(UNAUTHENTICATED, GLOBAL)
                    raise
                raise
            raise refused from None
        if principal is ANONYMOUS:
            if refused is not None:
                raise refused
        elif refused is not None:
            context.allowance = limiter.take(context.connection, principal.id, context.address)
        else:
            limiter.uncount(UNAUTHENTICATED)
        return principal

    def _count(self, context: Any, environ: dict[str, Any], address: str) -> None:
        context.connection = f"{environ.get('REMOTE_ADDR')}:{environ.get('REMOTE_PORT')}"
        principal: Principal = context.principal
        principal_id = None if principal is ANONYMOUS else principal.id
        context.allowance = self._limiter.take(context.connection, principal_id, address)

    def _answer_other(self, req: falcon.Request, resp: Response, place: Place) -> None:
        """OPTIONS and unknown methods: told only to who may do something here."""
        if any(mounted.operation.same_origin for mounted in place.operations.values()):
            self._guard.check_origin(req.env)
        refusal: ApplianceError | None = None
        for mounted in place.operations.values():
            try:
                self._guard.admit(req.context.principal, mounted.scope, req.env)
            except ApplianceError as error:
                refusal = error
            else:
                break
        else:
            if refusal is not None:
                raise refusal
        if req.method != "OPTIONS":
            raise errors.MethodNotAllowed(details={"allow": place.allow})
        resp.stamp({"allow": ", ".join(place.allow)})
        resp.status = falcon.HTTP_204
        resp.complete = True


def _signer(req: falcon.Request, mounted: Mounted) -> Principal:
    """Who signed the request. What is signed is the body, so it is read here, once."""
    judge = None if mounted.signer is None else mounted.signer(req.env)
    if judge is None:
        return ANONYMOUS
    raw = b"" if mounted.body is None else mounted.body.read(req.env)
    req.context.raw_body = raw
    return judge(raw)


def _refuse_limited(principal: Principal, scope: str | None) -> None:
    if scope is not None and principal.channels_for(scope) is not None:
        raise Forbidden(
            "a token that is limited to channels may not do that", details={"scope": scope}
        )


class Body:
    """Middleware that decodes what the operation declares: query, key, body."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    def process_resource(
        self, req: falcon.Request, _resp: Response, _resource: object, params: dict[str, Any]
    ) -> None:
        context, environ = req.context, req.env
        mounted: Mounted = context.mounted
        if params:
            check_params(params)
        context.query = mounted.query.parse(environ.get("QUERY_STRING", ""))
        if mounted.keyed:
            context.idempotency_key = idempotency_key(environ.get("HTTP_IDEMPOTENCY_KEY"))
        plan = mounted.body
        if plan is None:
            return
        raw = context.raw_body if context.raw_body is not None else plan.read(environ)
        context.raw_body = raw
        params["command"] = command = plan.decode(raw)
        if mounted.cost is not None:
            self._charge(context, mounted.cost(command))

    def _charge(self, context: Any, cost: int) -> None:
        if cost <= 1:
            return
        principal: Principal = context.principal
        context.allowance = self._limiter.take(
            context.connection,
            None if principal is ANONYMOUS else principal.id,
            context.address,
            cost=cost,
            counted=1,
        )


class Answers:
    """Middleware that refuses large answers while too many bytes wait for other clients.

    Only reads are refused: a change has happened. Probes and metrics always get through.
    """

    def __init__(self, unsent: UnsentBudget, failures: "Failures") -> None:
        self._unsent = unsent
        self._failures = failures

    def process_response(
        self, req: falcon.Request, resp: Response, _resource: object, _succeeded: bool
    ) -> None:
        data = resp.data
        if data is None or len(data) <= LARGE_BYTES or req.context.method != "GET":
            return
        mounted: Mounted | None = getattr(req.context, "mounted", None)
        if mounted is not None and (mounted.operation.probe or mounted.scope == SCRAPE):
            return
        try:
            self._unsent.admit(len(data))
        except ApplianceError as error:
            self._failures.ours(req, resp, error, {})


class Failures:
    """Turns whatever was raised into the one error body."""

    def __init__(self, log: Log, absent: Absent) -> None:
        self._log = log
        self._absent = absent

    def ours(
        self, req: falcon.Request, resp: Response, error: ApplianceError, _params: dict[str, Any]
    ) -> None:
        if isinstance(error, RateLimited):
            req.context.allowance = error.allowance
        req.context.error_code = error.code
        resp.status = falcon.code_to_http_status(errors.status_of(error))
        resp.data = errors.body(error, req.context.request_id)
        resp.stamp({"content-type": "application/json", **errors.headers_of(error)})

    def falcons(
        self, req: falcon.Request, resp: Response, error: falcon.HTTPError, params: dict[str, Any]
    ) -> None:
        status = error.status_code
        told: ApplianceError
        if status == 404:
            told = self._absent(req.path) or errors.NoSuchRoute()
        elif status == 415:
            told = errors.UnsupportedMediaType()
        elif status == 413:
            told = errors.PayloadTooLarge()
        elif status == 503:
            told = Unavailable()
        elif 400 <= status < 500:
            told = Invalid(error.title)
        else:
            self.unexpected(req, resp, error, params)
            return
        self.ours(req, resp, told, params)

    def unexpected(
        self, req: falcon.Request, resp: Response, error: Exception, params: dict[str, Any]
    ) -> None:
        """A fault of ours. The client gets the request id, the log type and frames."""
        request_id = req.context.request_id
        self._log.error(
            "a request failed unexpectedly",
            error,
            request_id=request_id,
            method=req.context.method,
            route=req.uri_template or "unmatched",
        )
        told = ApplianceError(hint=f"look for request_id {request_id} in the log")
        self.ours(req, resp, told, params)


def make_app(
    routes: Sequence[Route],
    guard: Guard,
    limiter: RateLimiter,
    *,
    settings: HttpSettings,
    log: Log,
    clock: Clock,
    instance_id: str,
    access: str = "errors",
    unsent: UnsentBudget | None = None,
    absent: Absent = lambda _path: None,
) -> App:
    """The app of these routes. Raises UnfitRoute for one that nobody guards or describes.
    `absent` explains why there is no route at a path."""
    check_routes(routes)
    places = {route.path: Place(route, settings) for route in routes}
    probes = frozenset(
        route.path for route in routes if any(o.probe for o in route.operations.values())
    )
    failures = Failures(log, absent)
    app: App = falcon.App(
        response_type=Response,
        middleware=[
            Observe(log, clock, instance_id, access),
            AccessMiddleware(guard, limiter, places, probes),
            Body(limiter),
            Answers(unsent or UnsentBudget(settings.unsent_bytes_max, clock), failures),
        ],
    )
    app.add_error_handler(Exception, failures.unexpected)
    app.add_error_handler(falcon.HTTPError, failures.falcons)
    app.add_error_handler(ApplianceError, failures.ours)
    for route in routes:
        app.add_route(route.path, route.resource, suffix=route.suffix)
    return app

"""The Falcon app: routes, the middlewares around them, and the error handlers.

The order: ObserveMiddleware is outermost, so that refused requests are counted and logged too.
AccessMiddleware is next. Before routing, host, credential and rate are checked, so unknown and
known paths have equal limits. After routing, the scope is checked, and only then the body is read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import falcon

from appliance.kernel import caller
from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.clock import Clock
from appliance.kernel.errors import (
    ApplianceError,
    Forbidden,
    Invalid,
    OutOfMemory,
    Unauthenticated,
)
from appliance.kernel.log import Log
from appliance.kernel.route import OPEN, SIGNATURE, Absent, Operation, Route, check_routes
from appliance.web import errors
from appliance.web.body import BodyPlan, QueryPlan, check_params, idempotency_key
from appliance.web.guard import Guard, has_signature_scheme, session_cookie
from appliance.web.limits import (
    GLOBAL,
    OPEN_CHANGE_COST,
    UNAUTHENTICATED,
    RateLimited,
    RateLimiter,
)
from appliance.web.observe import ObserveMiddleware, Response

BODY_BYTES_MAX = 512 * 1024  # a 64 KiB message can need six times as much in JSON
BATCH_BYTES_MAX = 8 * 1024 * 1024  # decoding blocks the event loop
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Some clients append a slash. All other paths stay unchanged: a proxy may refuse one form.
ALIASES = {"/mcp/": "/mcp"}
App = falcon.App[falcon.Request, Response]


class MountedOperation:
    """An operation, with everything that is prepared before the first request."""

    __slots__ = ("body", "operation", "query", "same_origin")

    def __init__(self, method: str, operation: Operation) -> None:
        bytes_max = BATCH_BYTES_MAX if operation.batch else BODY_BYTES_MAX
        self.operation = operation
        self.query = QueryPlan(operation.query)
        self.body = (
            None
            if operation.body is None or operation.verifies_sender
            else BodyPlan(operation.body, bytes_max, operation.list_field)
        )
        self.same_origin = method not in READING or operation.same_origin


MountedRoute = dict[str, MountedOperation]
"""A mounted path's operations by method."""


class AccessMiddleware:
    """Checks host, credential and rate before routing, and scope and origin after it. Then decodes
    the query, the idempotency key and the body, as the operation declares."""

    def __init__(
        self,
        guard: Guard,
        limiter: RateLimiter,
        routes: dict[str, MountedRoute],
        probes: frozenset[str],
    ) -> None:
        self._guard = guard
        self._limiter = limiter
        self._routes = routes
        self._probes = probes
        self._verifying = frozenset(
            (method, path.rpartition("/")[0])
            for path, route in routes.items()
            for method, mounted in route.items()
            if mounted.operation.verifies_sender
        )

    def process_request(self, req: falcon.Request, _resp: Response) -> None:
        environ, context, guard = req.env, req.context, self._guard
        req.path = ALIASES.get(req.path, req.path)
        context.refusal = {}
        probe = req.path in self._probes
        if not probe or guard.loopback:
            guard.check_host(environ)
        context.principal = ANONYMOUS
        context.idempotency_key = context.query = context.raw_body = context.refused = None
        context.address = address = guard.address(environ)
        context.connection = f"{environ.get('REMOTE_ADDR')}:{environ.get('REMOTE_PORT')}"
        context.is_secure = guard.scheme(environ) == "https"
        context.prefix = guard.prefix(environ)
        verifying = (req.method, req.path.rpartition("/")[0]) in self._verifying
        try:
            context.principal = ANONYMOUS if verifying else guard.authenticate(environ)
        except ApplianceError as error:
            if isinstance(error, Unauthenticated):
                self._limiter.fail(address)
            if not probe:
                count(self._limiter, context)
            raise
        if not probe:
            try:
                count(self._limiter, context)
            except RateLimited as error:
                # The signature is verified after routing, and may still identify the caller.
                if error.which != UNAUTHENTICATED or not (
                    SIGNATURE in environ or has_signature_scheme(environ)
                ):
                    raise
                context.refused = error

    def process_resource(
        self, req: falcon.Request, resp: Response, _resource: object, params: dict[str, Any]
    ) -> None:
        route = self._routes[req.uri_template or ""]
        mounted = route.get(req.method)
        if mounted is None:
            self._answer_other(req, resp, route)
            return
        operation, scope = mounted.operation, mounted.operation.scope
        req.context.refusal = operation.refusal
        principal: Principal = req.context.principal
        if operation.signer is not None and principal is ANONYMOUS:
            principal = req.context.principal = self._verify_signature(req, mounted)
        elif scope is not None and has_signature_scheme(req.env):
            raise Unauthenticated("this route does not accept signed requests")
        elif req.context.refused is not None:
            raise req.context.refused
        req.context.ids["principal_id"] = principal.id
        self._guard.admit(principal, scope, req.env, operation.also)
        if principal.channels is not None and not operation.by_channel:
            refuse_limited(principal, scope)
        is_open = operation.audited or (scope is OPEN and not operation.probe)
        if principal is ANONYMOUS and is_open:
            cost = OPEN_CHANGE_COST if operation.audited else 1
            self._limiter.take_open(req.context.address, cost)
        if mounted.same_origin:
            self._guard.check_origin(req.env)
        if req.method not in READING:
            self._guard.writes.check(unless=operation.in_maintenance)
        connection = req.env.get("agentlip.connection")
        if connection is not None:  # not closed by a full pool
            connection.authenticated = principal is not ANONYMOUS
        req.context.mounted = mounted
        self._decode(req, params)

    def _decode(self, req: falcon.Request, params: dict[str, Any]) -> None:
        context, environ = req.context, req.env
        mounted: MountedOperation = context.mounted
        check_params(params)
        context.query = request = mounted.query.parse(environ.get("QUERY_STRING", ""))
        if mounted.operation.keyed:
            context.idempotency_key = idempotency_key(environ.get("HTTP_IDEMPOTENCY_KEY"))
        if mounted.body is not None:
            params["command"] = request = self._decode_body(context, mounted, environ)
        bound = self._guard.pauses.bind(mounted.operation.bounded, context.principal, request)
        caller.bound.set(bound)

    def _decode_body(self, context: Any, mounted: MountedOperation, environ: dict[str, Any]) -> Any:
        assert mounted.body is not None
        if context.raw_body is None:
            context.raw_body = mounted.body.read(environ)
        command = mounted.body.decode(context.raw_body)
        if mounted.operation.cost is not None:
            cost = mounted.operation.cost(command)
            if cost > 1:
                count(self._limiter, context, cost, counted=1)
        return command

    def _verify_signature(self, req: falcon.Request, mounted: MountedOperation) -> Principal:
        """Return the principal that signed the request, which so far counted as one without a
        token."""
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
            context.allowance = limiter.charge(context.connection, principal.id, context.address)
        else:
            limiter.uncount(UNAUTHENTICATED)
        return principal

    def _answer_other(self, req: falcon.Request, resp: Response, route: MountedRoute) -> None:
        """Respond to OPTIONS and unknown methods, if the caller may use any method here."""
        operations = [mounted.operation for mounted in route.values()]
        req.context.refusal = operations[0].refusal
        if any(operation.same_origin for operation in operations):
            self._guard.check_origin(req.env)
        allows = partial(self._guard.allows, req.context.principal, environ=req.env)
        if not any(allows(operation.scope, also=operation.also) for operation in operations):
            self._guard.admit(req.context.principal, operations[0].scope, req.env)
        allow = sorted({*route, "OPTIONS", *(("HEAD",) if "GET" in route else ())})
        if req.method != "OPTIONS":
            raise errors.MethodNotAllowed(details={"allow": allow})
        resp.stamp({"allow": ", ".join(allow)})
        resp.status = falcon.HTTP_204
        resp.complete = True


def _signer(req: falcon.Request, mounted: MountedOperation) -> Principal:
    """Return the principal that signed the request. Reads the body, which the signature covers."""
    verify = None if mounted.operation.signer is None else mounted.operation.signer(req.env)
    if verify is None:
        return ANONYMOUS
    raw = b"" if mounted.body is None else mounted.body.read(req.env)
    req.context.raw_body = raw
    return verify(raw)


def count(limiter: RateLimiter, context: Any, cost: int = 1, counted: int = 0) -> None:
    """Count a request, as `RateLimiter.charge` does."""
    principal: Principal = context.principal
    principal_id = None if principal is ANONYMOUS else principal.id
    context.allowance = limiter.charge(
        context.connection, principal_id, context.address, cost, counted
    )


def refuse_limited(principal: Principal, scope: str | None) -> None:
    if scope is not None and principal.channels_for(scope) is not None:
        raise Forbidden(
            "a token that is limited to channels can't be used for this request",
            details={"scope": scope},
        )


class ErrorHandlers:
    """Turns every exception into the error body."""

    def __init__(self, log: Log, absent: Absent, limiter: RateLimiter, guard: Guard) -> None:
        self._log = log
        self._guard = guard
        self._absent = absent
        self._limiter = limiter

    def handle_expected(
        self, req: falcon.Request, resp: Response, error: ApplianceError, _params: dict[str, Any]
    ) -> None:
        # Wrong tokens and signatures were counted before.
        if isinstance(error, Unauthenticated) and (error.guess or session_cookie(req.env)):
            try:
                self._limiter.fail(req.context.address)
            except RateLimited as limited:
                error = limited
        if isinstance(error, RateLimited):
            req.context.allowance = error.allowance
        req.context.error_code = error.code
        resp.status = falcon.code_to_http_status(error.status)
        resp.data = errors.body(error, req.context.request_id, req.context.refusal)
        headers = errors.headers_of(error, self._guard.challenge(req.path))
        resp.stamp({"content-type": "application/json", **headers})

    def handle_falcon(
        self, req: falcon.Request, resp: Response, error: falcon.HTTPError, params: dict[str, Any]
    ) -> None:
        if error.status_code == 404:
            self.handle_expected(req, resp, self._absent(req.path) or errors.NoSuchRoute(), params)
        elif 400 <= error.status_code < 500:
            self.handle_expected(req, resp, Invalid(error.title), params)
        else:
            self.handle_unexpected(req, resp, error, params)

    def handle_out_of_memory(
        self, req: falcon.Request, resp: Response, _error: MemoryError, params: dict[str, Any]
    ) -> None:
        self._log.error("a request was refused for lack of memory", method=req.context.method)
        self.handle_expected(req, resp, OutOfMemory(), params)

    def handle_unexpected(
        self, req: falcon.Request, resp: Response, error: Exception, params: dict[str, Any]
    ) -> None:
        """Reply to a bug. The client gets the request id; the log has the exception's type and
        frames."""
        request_id = req.context.request_id
        self._log.error(
            "request failed with an unexpected error",
            error,
            method=req.context.method,
            route=req.uri_template or "unmatched",
        )
        failure = ApplianceError(hint=f"look for request_id {request_id} in the log")
        self.handle_expected(req, resp, failure, params)


def make_app(
    routes: Sequence[Route],
    guard: Guard,
    limiter: RateLimiter,
    *,
    log: Log,
    clock: Clock,
    instance_id: str,
    access: str = "errors",
    absent: Absent = lambda _path: None,
    audit: Any = None,
) -> App:
    """Build the app. Raises InvalidRoute for a route without scope or summary. `absent` explains
    why there is no route at a path; `audit` is the middleware that records acts."""
    check_routes(routes)
    mounted = {
        route.path: {
            method: MountedOperation(method, operation)
            for method, operation in route.operations.items()
        }
        for route in routes
    }
    probes = frozenset(
        route.path for route in routes if any(o.probe for o in route.operations.values())
    )
    failures = ErrorHandlers(log, absent, limiter, guard)
    app: App = falcon.App(
        response_type=Response,
        middleware=[
            ObserveMiddleware(log, clock, instance_id, access),
            AccessMiddleware(guard, limiter, mounted, probes),
            *((audit,) if audit else ()),
        ],
    )
    app.add_error_handler(Exception, failures.handle_unexpected)
    app.add_error_handler(MemoryError, failures.handle_out_of_memory)
    app.add_error_handler(falcon.HTTPError, failures.handle_falcon)
    app.add_error_handler(ApplianceError, failures.handle_expected)
    for route in routes:
        # With the last one, the router is compiled. Otherwise the first request would wait for
        # that, and memory that later parts of the start use would be left over.
        is_last = route is routes[-1]
        app.add_route(route.path, route.resource, suffix=route.suffix, compile=is_last)
    return app

"""Serves WebSocket upgrades, and passes other requests to Falcon.

Falcon has no WebSockets under WSGI, and after a responder that took over the socket, Falcon would
write HTTP headers. So the guard's functions check upgrades here, and the raw socket is served until
its end.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from socket import SHUT_RDWR
from typing import Any

import gevent

from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.caller import bound as current_bound
from appliance.kernel.caller import request as current_request
from appliance.kernel.clock import Clock
from appliance.kernel.errors import (
    ApplianceError,
    Forbidden,
    Missing,
    Unauthenticated,
    Unavailable,
    refuse_scope,
)
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.route import Absent, SocketRoute
from appliance.web import errors
from appliance.web.body import QueryPlan
from appliance.web.exchange import ALREADY_HANDLED
from appliance.web.guard import SUBPROTOCOL_PREFIX, Guard, query_token
from appliance.web.handshake import handshake, is_upgrade
from appliance.web.limits import RateLimited, RateLimiter
from appliance.web.socket import (
    GOING_AWAY,
    UNAUTHORIZED,
    Socket,
    SocketSettings,
    close_code,
)
from appliance.web.unsent import UnsentBudget

UNAUTHENTICATED_MAX = 16  # broker links before their hello; one more closes the oldest
OVER = "the token is revoked or expired"
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Caller = Principal | ApplianceError
"""The caller, or an error that is sent after the upgrade, where browsers can read it."""


class TooManySockets(Unavailable):
    default_message = "too many WebSocket connections"
    default_hint = "close some, or raise `socket.connections_max`"


class NoSuchSocket(Missing):
    default_message = "there is no WebSocket at this path"
    default_hint = "the hub's path is /ws; docs/reference/protocol.md lists the others"


class WsgiApplication:
    """The appliance's WSGI application."""

    def __init__(
        self,
        falcon_app: Callable[..., Iterable[bytes]],
        sockets: Sequence[SocketRoute],
        guard: Guard,
        limiter: RateLimiter,
        settings: SocketSettings,
        clock: Clock,
        log: Log,
        unsent: UnsentBudget,
        absent: Absent = lambda _path: None,
    ) -> None:
        """Prepare the upgrades. `absent` explains why there is no socket at a path."""
        self._falcon_app = falcon_app
        self._sockets = {route.path: route for route in sockets}
        self._queries = {
            route.path: QueryPlan(route.query) for route in sockets if route.query is not None
        }
        self._guard = guard
        self._limiter = limiter
        self._settings = settings
        self._clock = clock
        self._log = log
        self._unsent = unsent
        self._absent = absent
        # Oldest first, each with its raw socket; None for anonymous callers.
        self._open: dict[Socket, Any] = {}
        self.sockets_max = 0
        self._closing = False

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Any:
        if is_upgrade(environ):
            return self._upgrade(environ, start_response)
        return self._falcon_app(environ, start_response)

    def close_sockets(self, timeout_seconds: float) -> None:
        """Close every socket with 1001 and wait for them, at most `timeout_seconds`."""
        self._closing = True
        for socket in list(self._open):
            socket.close(GOING_AWAY, "the server is stopping")
        with gevent.Timeout(timeout_seconds, False):
            while self._open:
                gevent.sleep(0.01)

    def _upgrade(self, environ: dict[str, Any], start_response: StartResponse) -> Any:
        request_id = random_id()
        current_request.set({"request_id": request_id})
        current_bound.set(None)  # a former request's
        ending = contextlib.ExitStack()
        try:
            route = self._find(environ)
            plan = self._queries.get(route.path)
            query = plan and plan.parse(environ.get("QUERY_STRING", ""))
            caller = self._caller(environ, route)
            self._admit(environ, route, caller)
            hello = handshake(environ, chosen_subprotocol(environ))
            connection = environ["agentlip.connection"]
            # All other sockets have separate limits, so a full pool closes none.
            connection.authenticated = not is_anonymous(caller, route)
            token_id = caller_id(caller)
            if route.consumes and token_id is not None:
                ending.callback(connection.become_consumer(token_id))
            ending.callback(connection.stay(lambda: None))  # a socket sees its client leave
        except ApplianceError as error:
            return _refuse(error, request_id, start_response)
        with ending, contextlib.suppress(OSError):
            environ["gunicorn.socket"].sendall(hello)
            self._serve(environ, route, caller, query)
        return ALREADY_HANDLED

    def _find(self, environ: dict[str, Any]) -> SocketRoute:
        self._guard.check_host(environ)
        self._guard.check_origin(environ)
        path = environ.get("PATH_INFO", "")
        route = self._sockets.get(path)
        if route is None:
            hint = "WebSockets: " + ", ".join(sorted(self._sockets))
            raise self._absent(path) or NoSuchSocket(hint=hint)
        token = query_token(environ.get("QUERY_STRING", ""))
        if token is not None and not route.token_in_query:
            raise errors.TokenInQuery
        if self._closing:
            raise Unavailable("shutting down")
        self._guard.writes.check(unless=route.charges_writes)
        return route

    def _caller(self, environ: dict[str, Any], route: SocketRoute) -> Caller:
        try:
            principal = self._guard.authenticate(environ, socket=True)
            if route.scope is not None and route.free_on_loopback:
                self._guard.admit(principal, route.scope, environ)
            elif route.scope is not None and not principal.allows(route.scope):
                if principal is ANONYMOUS:
                    raise Unauthenticated
                raise refuse_scope(route.scope)
        except (Unauthenticated, Forbidden) as error:
            return error
        return principal

    def _admit(self, environ: dict[str, Any], route: SocketRoute, caller: Caller) -> None:
        """Count the upgrade against the limits for such a caller."""
        address, limit = self._guard.address(environ), self._settings.connections_max
        if isinstance(caller, Unauthenticated):
            self._limiter.fail(address)
        if caller is ANONYMOUS and route.scope is None:
            self._limiter.take_open(address)
        else:
            self._limiter.charge(connection_of(environ), caller_id(caller), address)
        if is_anonymous(caller, route):
            return  # counted by the connection
        # A broker link authenticates only later, and has its own quota, so that other clients
        # without a token can't block it.
        if caller_id(caller) is not None:
            others = (socket for socket in self._open if not socket.consumes)
            if not route.consumes and sum(socket.identified for socket in others) >= limit:
                raise TooManySockets(details={"limit": limit})
            return
        unidentified = [
            (socket, raw)
            for socket, raw in self._open.items()
            if raw is not None and not socket.identified
        ]
        if len(unidentified) >= UNAUTHENTICATED_MAX:
            if isinstance(caller, ApplianceError):
                raise caller
            socket, raw = unidentified[0]
            del self._open[socket]
            with contextlib.suppress(OSError):
                raw.shutdown(SHUT_RDWR)

    def _serve(
        self, environ: dict[str, Any], route: SocketRoute, caller: Caller, query: Any
    ) -> None:
        raw, leftover = environ["gunicorn.socket"], environ["agentlip.buffered"]()
        socket = Socket(raw, self._clock, leftover, self._unsent, route.frame_bytes_max)
        socket.identified = caller_id(caller) is not None
        socket.consumes = route.consumes
        self._open[socket] = None if is_anonymous(caller, route) else raw
        self.sockets_max = max(self.sockets_max, len(self._open))
        with contextlib.ExitStack() as ending:
            ending.callback(self._open.pop, socket, None)
            try:
                if isinstance(caller, ApplianceError):
                    raise caller
                if caller is ANONYMOUS and route.scope is None:
                    socket.restrict()
                connection, address = connection_of(environ), self._guard.address(environ)

                def charge(cost: int) -> None:
                    self._guard.writes.check()
                    self._limiter.charge(connection, caller_id(caller), address, cost)

                over = partial(socket.close, UNAUTHORIZED, OVER)
                ending.callback(self._guard.book.watch(caller, over))
                if not route.charges_writes:
                    ending.callback(self._guard.writes.watch(socket.close))
                code = route.serve(socket, caller, charge, query)
                self._log.debug("socket closed", code=code)
                if code == UNAUTHORIZED and not socket.identified:
                    with contextlib.suppress(RateLimited):
                        self._limiter.fail(address)
            except ApplianceError as error:
                # Accepted, then closed, because browsers can't read why an upgrade was refused.
                socket.close(close_code(error), error.message)
                socket.end()
            except Exception as error:
                self._log.error("unexpected error in a WebSocket", error)


def caller_id(caller: Caller) -> str | None:
    """Return the caller's id for rate limits; None without a valid token."""
    if isinstance(caller, ApplianceError) or caller is ANONYMOUS:
        return None
    return caller.id


def is_anonymous(caller: Caller, route: SocketRoute) -> bool:
    """Return whether the caller needs no token here. A broker link authenticates in its first
    frame."""
    return caller is ANONYMOUS and route.scope is not None


def connection_of(environ: dict[str, Any]) -> str:
    return f"{environ.get('REMOTE_ADDR')}:{environ.get('REMOTE_PORT')}"


def chosen_subprotocol(environ: dict[str, Any]) -> str | None:
    """Return the first offered subprotocol that contains no token, if any."""
    offered = environ.get("HTTP_SEC_WEBSOCKET_PROTOCOL", "")
    for name in (part.strip() for part in offered.split(",")):
        if name and not name.startswith(SUBPROTOCOL_PREFIX):
            return str(name)
    return None


def _refuse(error: ApplianceError, request_id: str, start_response: StartResponse) -> list[bytes]:
    body = errors.body(error, request_id)
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        ("X-Request-ID", request_id),
        *errors.headers_of(error).items(),
    ]
    start_response(errors.code_to_http_status(error.status), headers)
    return [body]

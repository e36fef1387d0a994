"""Routes: a path, its resource, and each method's callers and rules.

The guard, the decoding, the limits and the OpenAPI document all use these rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError
from appliance.kernel.pauses import Bounded

OPEN: None = None
"""The scope for an operation that anybody may call. This scope has to be set explicitly."""

READ_DOCS = "docs:read"
"""The scope for pages about the appliance: free on loopback, any token elsewhere."""

SIGNATURE = "HTTP_X_AGENTLIP_SIGNATURE"
"""The signature header's key in the WSGI environ."""

Signer = Callable[[Mapping[str, Any]], Callable[[bytes], Principal] | None]
"""Raises Unauthenticated as early as possible, preferably before the body is read."""

Absent = Callable[[str], ApplianceError | None]
"""The error for a path that only other configurations have; None: an unknown path."""

FRAME_BYTES_MAX = 256 * 1024
"""From a client on a socket; a message has 64 KiB, and six times as much escaped."""

PARAMETER_PATTERN = "^[A-Za-z0-9_.~-]{1,128}$"
"""The documentation's text for each path parameter."""


class Operation(msgspec.Struct, frozen=True):
    """One method on one path.

    scope          `<subsystem>:<verb>`, or OPEN
    body           struct (or tagged union) for the JSON body, passed as `command`
    reply          struct for the JSON reply; a tuple: one among them; None: no JSON
    query          struct for the query parameters, passed as `req.context.query`
    status         a success's status
    repeat_status  a success's status if nothing changed, if it differs
    summary        one line for people; required
    cost           how many requests a decoded body counts as, for batches
    batch          whether the larger body limit applies
    list_field     body field, a list, whose items are validated separately: an invalid
                   item is passed as its Invalid error
    probe          a health probe: never rate limited; its Host header is not checked on a
                   network bind
    signer         authenticates signed requests without a token; called with the environ
                   and returns None for an unsigned request, or a function that verifies the body
    also           other scopes that admit a caller; the operation itself checks for what
    by_channel     the operation itself checks the channels that limit a token; otherwise a token
                   that is limited for this scope is refused
    same_origin    pages with other origins may not even read it (they may never change anything)
    media          the reply's content type, if it is not JSON
    keyed          requests with the same Idempotency-Key get the first reply again
    errors         error classes for the documentation, beside the usual ones
    refusal        keys that an error's body has too
    example        a request body for the documentation
    audited        it is an administrative act, which the audit log records
    in_maintenance  maintenance mode does not refuse it
    credential     for an open operation: whether the parameters contain a valid credential, such as
                   a link. Otherwise a request without a token is not audited: anybody could send it
    upload         the responder reads the body, a file with any content type, in pieces
    verifies_sender  the responder reads the body and verifies the sender: `Authorization` is not a
                   token, and `body` is only for the documentation. The path must end in a field
    bounded        a pause refuses each `use`, or only a request that does `wait`
    """

    scope: str | None
    summary: str = ""
    body: Any = None
    reply: Any = None
    status: int = 200
    repeat_status: int | None = None
    query: Any = None
    cost: Callable[[Any], int] | None = None
    batch: bool = False
    list_field: str | None = None
    probe: bool = False
    signer: Signer | None = None
    also: tuple[str, ...] = ()
    by_channel: bool = False
    same_origin: bool = False
    keyed: bool = False
    media: str = "application/json"
    errors: tuple[type[ApplianceError], ...] = ()
    refusal: Mapping[str, Any] = {}
    example: Any = None
    audited: bool = False
    in_maintenance: bool = False
    credential: Callable[..., bool] | None = None
    upload: bool = False
    verifies_sender: bool = False
    bounded: Bounded | None = None

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the scopes that admit a caller, each alone; empty: anybody may call it."""
        return () if self.scope is None else (self.scope, *self.also)


class Route(msgspec.Struct, frozen=True):
    """A Falcon path template, its resource, and its methods' operations.

    With Falcon's `suffix`, collection and item can share one class.
    """

    path: str
    resource: Any
    operations: Mapping[str, Operation]
    suffix: str | None = None


class SocketRoute(msgspec.Struct, frozen=True):
    """Serves one path's WebSockets.

    scope             required scope; None: the first frame authenticates the client
    serve             (socket, principal, charge, query) → close code; `query` is a `query` struct
    query             struct of the query parameters; None: they are ignored
    token_in_query    the token may be in the query, for browsers (the hub's socket only)
    free_on_loopback  whether the guard's loopback rule applies, as for requests
    frame_bytes_max   a client that sends a larger message is disconnected
    charges_writes    each request that writes is charged; maintenance mode refuses these, and
                      closes other sockets
    consumes          its clients wait for work: they count against `http.consumers_max`
    """

    path: str
    scope: str | None
    serve: Callable[[Any, Principal, Callable[[int], None], Any], int]
    query: Any = None
    token_in_query: bool = False
    free_on_loopback: bool = False
    frame_bytes_max: int = FRAME_BYTES_MAX
    charges_writes: bool = False
    consumes: bool = False


class InvalidRoute(Exception):
    """A route that must not be mounted. Raised only while the app is built."""


def responder_name(method: str, suffix: str | None) -> str:
    return f"on_{method.lower()}" + (f"_{suffix}" if suffix else "")


def check_routes(routes: Sequence[Route]) -> None:
    """Raise InvalidRoute for unguarded responders, operations without responder, doubled paths."""
    seen: set[str] = set()
    covered: dict[int, tuple[Any, set[str]]] = {}
    for route in routes:
        if route.path in seen:
            raise InvalidRoute(f"{route.path} is mounted twice")
        seen.add(route.path)
        names = covered.setdefault(id(route.resource), (route.resource, set()))[1]
        for method, operation in route.operations.items():
            _check_operation(route, method, operation)
            names.add(responder_name(method, route.suffix))
    for resource, names in covered.values():
        loose = {name for name in dir(resource) if name.startswith("on_")} - names
        if loose:
            raise InvalidRoute(
                f"{type(resource).__name__}: no Operation declared for {', '.join(sorted(loose))}"
            )


def _check_operation(route: Route, method: str, operation: Operation) -> None:
    where = f"{method} {route.path}"
    responder = getattr(route.resource, responder_name(method, route.suffix), None)
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        raise InvalidRoute(f"{where}: HEAD and OPTIONS must not be declared")
    if not callable(responder):
        raise InvalidRoute(f"{where}: {type(route.resource).__name__} has no responder for it")
    if operation.probe and ("{" in route.path or operation.scope is not None):
        raise InvalidRoute(f"{where}: a probe needs a fixed path and no scope")

"""What can be mounted: a path, its resource, and for each method who may call it and how.

The same rows drive the guard, the decoding, the limits and the OpenAPI document, so
none of them can disagree with another.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from appliance.kernel.auth import Principal
from appliance.kernel.errors import ApplianceError

OPEN: None = None
"""The scope of an operation that anybody may call. It has to be written out."""

READ_DOCS = "docs:read"
"""Pages that describe the appliance: free on loopback, for who knows a token elsewhere."""

SIGNATURE = "HTTP_X_AGENTLIP_SIGNATURE"
"""The header of signed requests, as in the environ."""

Signer = Callable[[Mapping[str, Any]], Callable[[bytes], Principal] | None]
"""Raises Unauthenticated as soon as it knows, preferably before the body is read."""

Absent = Callable[[str], ApplianceError | None]
"""Why nothing is mounted at a path that exists in other configurations; None: no known reason."""

DEFAULT_PATTERN = "^[A-Za-z0-9_.~-]{1,128}$"
"""A path parameter that its route does not describe further."""


class Operation(msgspec.Struct, frozen=True):
    """One method of one path.

    scope    `<subsystem>:<verb>`, or OPEN
    body     struct (or tagged union) of the JSON body; arrives as `command`
    reply    struct of the JSON answer; several: one of them; None: no JSON
    query    struct of the query parameters; arrives as `req.context.query`
    status   of a success
    again    status of a success that changed nothing, where it is another one
    summary  one line for people; required
    cost     how many requests a decoded body counts as, for batches
    batch    the larger body limit holds
    each     field of the body, a list, whose items are judged one by one: a wrong one arrives
             as the Invalid that it is, and the others as they are
    probe    a health probe: never limited, and its Host header is not judged on a network bind
    signer   judges signed requests: from a request without a token it makes the caller, or None
             if nobody signed it. It gets the environ, and what it returns gets the body's bytes
    by_channel  looks itself at the channels a token is limited to; without it a token that is
             limited for this scope is refused
    same_origin  no page of another origin may even read it (mutations are refused to such anyway)
    media    content type of the answer, where it is not JSON
    keyed    a request with an Idempotency-Key is answered once: the same again gets that answer
    errors   error classes worth naming in the documentation beside the usual ones
    example  a request body for the documentation
    """

    scope: str | None
    summary: str = ""
    body: Any = None
    reply: Any = None
    status: int = 200
    again: int | None = None
    query: Any = None
    cost: Callable[[Any], int] | None = None
    batch: bool = False
    each: str | None = None
    probe: bool = False
    signer: Signer | None = None
    by_channel: bool = False
    same_origin: bool = False
    keyed: bool = False
    media: str = "application/json"
    errors: tuple[type[Exception], ...] = ()
    example: Any = None


class Route(msgspec.Struct, frozen=True):
    """A Falcon path template, its resource, and the operations of its methods.

    `suffix` is Falcon's: collection and item may share one class. `params` maps names
    of path parameters to patterns for the documentation.
    """

    path: str
    resource: Any
    operations: Mapping[str, Operation]
    suffix: str | None = None
    params: Mapping[str, str] = {}


class SocketRoute(msgspec.Struct, frozen=True):
    """What serves the WebSockets of one path.

    scope             asked of the caller; None: the socket's first frame says who it is
    serve             (socket, principal, charge, query) → close code; `query` is a `query` struct
    query             struct of the query parameters; None: they are not looked at
    token_in_query    browsers may carry the token there (the hub's socket only)
    free_on_loopback  the guard's loopback rule holds, as for requests
    """

    path: str
    scope: str | None
    serve: Callable[[Any, Principal, Callable[[int], None], Any], int]
    query: Any = None
    token_in_query: bool = False
    free_on_loopback: bool = False


class UnfitRoute(Exception):
    """A route that must not be mounted; raised while the app is built, never later."""


def responder_name(method: str, suffix: str | None) -> str:
    return f"on_{method.lower()}" + (f"_{suffix}" if suffix else "")


def check_routes(routes: Sequence[Route]) -> None:
    """Refuse responders nobody guards, operations nobody answers, and doubled paths."""
    seen: set[str] = set()
    covered: dict[int, tuple[Any, set[str]]] = {}
    for route in routes:
        if route.path in seen:
            raise UnfitRoute(f"{route.path} is mounted twice")
        seen.add(route.path)
        names = covered.setdefault(id(route.resource), (route.resource, set()))[1]
        for method, operation in route.operations.items():
            _check_operation(route, method, operation)
            names.add(responder_name(method, route.suffix))
    for resource, names in covered.values():
        loose = {name for name in dir(resource) if name.startswith("on_")} - names
        if loose:
            raise UnfitRoute(
                f"{type(resource).__name__}: no Operation declared for {', '.join(sorted(loose))}"
            )


def _check_operation(route: Route, method: str, operation: Operation) -> None:
    where = f"{method} {route.path}"
    responder = getattr(route.resource, responder_name(method, route.suffix), None)
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        raise UnfitRoute(f"{where}: HEAD and OPTIONS are answered for all routes alike")
    if not callable(responder):
        raise UnfitRoute(f"{where}: {type(route.resource).__name__} has no responder for it")
    if not operation.summary:
        raise UnfitRoute(f"{where}: has no summary")
    if operation.scope is not None and ":" not in operation.scope:
        raise UnfitRoute(f"{where}: scope {operation.scope!r} is not <subsystem>:<verb>")
    if operation.probe and ("{" in route.path or operation.scope is not None):
        raise UnfitRoute(f"{where}: a probe has a fixed path and is open")
    if (operation.cost is not None or operation.batch) and operation.body is None:
        raise UnfitRoute(f"{where}: cost and batch speak of a body, and there is none")

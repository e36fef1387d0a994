"""Makes responders that pass a request on to a verb: a row in a route table, not a class.

    Route("/bus/v1/claims", Responders(get=reply_with(bus.claims)), {"GET": Operation(…)})

A verb gets the path's fields in order, then the query or the body.
"""

from collections.abc import Callable, Mapping
from typing import Any

import falcon

from appliance.web.media import begin_event_stream, reply, reply_stored

Verb = Callable[..., Any]
Responder = Callable[..., None]


class Responders:
    """A path's resource, with a responder for each method."""

    def __init__(self, **by_method: Responder) -> None:
        for method, respond in by_method.items():
            setattr(self, f"on_{method}", respond)


def reply_with(verb: Verb, status: int = 200) -> Responder:
    """Reply with what the verb returns."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        reply(resp, verb(*arguments_of(req, fields)), status)

    return respond


def reply_to_caller(verb: Verb, status: int = 200) -> Responder:
    """Reply with what the verb returns, which also gets the caller."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        reply(resp, verb(*arguments_of(req, fields), req.context.principal), status)

    return respond


def reply_to_change(verb: Verb) -> Responder:
    """Reply as the verb does, which also gets the caller and the idempotency key."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        context = req.context
        reply_stored(resp, verb(*fields.values(), context.principal, context.idempotency_key))

    return respond


def reply_with_events(stream: Verb) -> Responder:
    """Reply with server-sent events. `stream` also gets the header `Last-Event-ID` and the
    caller."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        if begin_event_stream(req.context, resp):
            last_id = req.get_header("Last-Event-ID")
            resp.stream = stream(*arguments_of(req, fields), last_id, req.context.principal)

    return respond


def arguments_of(req: Any, fields: Mapping[str, Any]) -> list[Any]:
    """Return the path's fields, then the query or the body."""
    query = req.context.query
    return [*fields.values(), *(() if query is None else (query,))]

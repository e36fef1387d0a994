"""Checks thread clients' handlers: plain functions, whose work is done when they return."""

import inspect
from typing import TypeVar

from appliance.kernel.errors import Invalid

T = TypeVar("T")


class HandlerNotPlain(Invalid):
    default_message = "the handler is async or a generator: a plain call does not run it"
    default_hint = "use AsyncConsumer, AsyncFileBus or AsyncHttpBus, or a plain function"


def require_plain(handler: T) -> T:
    """Return the handler. Raises HandlerNotPlain if a call only creates a coroutine."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_deferred(handler) for is_deferred in kinds):
        raise HandlerNotPlain
    return handler


def require_done(result: object) -> None:
    """Check a handler's return value. Raises HandlerNotPlain if it is work that has not run."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HandlerNotPlain

"""Handlers of clients that use threads: plain functions, whose work is done when they return."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.kernel.errors import Invalid

T = TypeVar("T")
DEFERRED = (
    inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction,
)  # fmt: skip


class HandlerNotPlain(Invalid):
    default_message = "the handler is async or a generator: calling it does not run it"
    default_hint = "use AsyncConsumer, AsyncFileBus or AsyncHttpBus, or a plain function"


def require_plain(handler: Callable[..., T]) -> Callable[..., T]:
    """Return the handler. Raises HandlerNotPlain if a call would only create a coroutine."""
    called = inspect.unwrap(handler)
    called = getattr(called, "func", called)  # functools.partial
    if not inspect.isroutine(called) and not inspect.isclass(called):
        called = type(called).__call__
    if any(is_deferred(called) for is_deferred in DEFERRED):
        raise HandlerNotPlain
    return handler


def require_done(result: Any) -> None:
    """Check what a handler returned. Raises HandlerNotPlain if it is work that has not run."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise HandlerNotPlain

"""A response of server-sent events: first what is stored, then what happens.

WHATWG HTML, "Server-sent events". The subsystem supplies the events as bytes (`EventSource`);
reconnecting, heartbeats, joining small events into larger writes and ending are here.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import takewhile
from typing import Protocol

import msgspec

from appliance.kernel.caller import Call, check_pauses
from appliance.kernel.errors import Invalid
from appliance.kernel.pauses import Paused
from appliance.web.frame import pieces

RETRY_LINE = b"retry: 1000\n\n"  # milliseconds until a client reconnects
HEARTBEAT_LINE = b": still here\n\n"
HEARTBEAT_SECONDS = 15.0  # proxies close connections without traffic, often after 60 s
ID_DIGITS_MAX = 18


class EventSource(Protocol):
    """A source for one response's events."""

    @property
    def closed(self) -> bool:
        """Return whether no more events will come, for instance because the appliance stops."""

    def begin(self) -> Iterable[bytes]:
        """Return what is sent first: RETRY_LINE, then the stored events after the client's
        cursor."""

    def pop(self) -> Iterable[bytes] | None:
        """Return the events since the last call, without waiting; None if there are none."""

    def wait(self, seconds: float) -> bool:
        """Wait for an event; False after `seconds` without one."""

    def wake(self) -> None:
        """End a running `wait` now."""

    def end(self) -> None:
        """Release what the source holds. Called once."""


class SseStream:
    """One text/event-stream response's bytes. The server calls `close` when it is over."""

    def __init__(self, source: EventSource, *begin: Callable[[Call], Call]) -> None:
        """Take functions that begin the stream: each is called with what ends the response
        early, and returns how to end it. If one raises, the source is released."""
        self._source = source
        self._open = True
        self._ending = ExitStack()
        self._ending.callback(source.wake)
        self._ending.callback(source.end)
        try:
            for event in begin:
                self._ending.callback(event(self.stop))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        source = self._source
        yield from takewhile(self._is_open, pieces(source.begin()))
        while self._open and not source.closed:
            events = source.pop()
            if events is not None:
                yield from takewhile(self._is_open, pieces(events))
            elif not source.wait(HEARTBEAT_SECONDS):
                yield HEARTBEAT_LINE
        yield from _tell_pause()

    def _is_open(self, _piece: bytes) -> bool:
        return self._open

    def stop(self) -> None:
        """Send nothing more; the response ends."""
        self._open = False
        self._source.wake()

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        self._open = False
        self._ending.close()


def _tell_pause() -> Iterator[bytes]:
    """Yield the error that ends a paused caller's stream."""
    try:
        check_pauses()
    except Paused as paused:
        yield b"event: error\ndata: %b\n\n" % msgspec.json.encode(paused.to_body())


def last_event_id(header: str | None) -> int | None:
    """Return the cursor in a `Last-Event-ID` header; None without one. Raises Invalid."""
    if not header:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= ID_DIGITS_MAX):
        raise Invalid("Last-Event-ID is not an event id", details={"header": "Last-Event-ID"})
    return int(header)

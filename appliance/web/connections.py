"""Manages the pool of open connections: states, time limits, and which close when it is full.

When the pool is full, a new client replaces other connections, in this order:

1. connections that only wait (idle, a half-sent head or body, lingering), the oldest wait first;
2. requests, streams and sockets without a valid token, the oldest first, above
`ANONYMOUS_MAX`, or half of all connections if that is less.

Courier consumers, which mostly wait, have a separate limit and aren't counted here. Requests with a
token are never closed for others. If nothing can be closed, the new client gets one of a few
reserved connections, and is refused with 503 unless it sends a health probe, so probes are served
however full the pool is.
"""

import resource
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any, cast

from gevent import monkey

from appliance.kernel.caller import Call, TooManyAnonymous
from appliance.kernel.errors import Unavailable
from appliance.kernel.metrics import counter, gauge
from appliance.web.settings import HttpSettings
from appliance.web.unsent import Unsent, UnsentBudget

SWEEP_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 75.0  # common proxies close an idle connection after 60 s
HEAD_SECONDS_MAX = 10.0  # from a request's first byte to its head's end
BODY_SECONDS_MAX = 60.0  # for a whole body, chunked or not: 8 MiB at 1.2 Mbit/s
LINGER_SECONDS_MAX = 2.0  # after a response, for a body's unread rest
SEND_SECONDS_MAX = 60.0  # for a client to receive a write
ANONYMOUS_MAX = 100
"""Sockets, streams and long polls without a valid token, all together: enough for one machine's
programs, and a tenth of the connections."""

TOKEN_SHARE = 0.8  # one token's share of http.consumers_max
PROBE_CONNECTIONS_MAX = 32  # in addition to http.connections_max, for health probes
IDLE, HEAD, BODY, WORK, SEND, LINGER = range(6)
STATES = ("idle", "head", "body", "work", "send", "linger")
WAITING = frozenset({IDLE, HEAD, BODY, LINGER})
SHED_PART = 16
"""One scan closes this fraction of the candidates, so that a flood doesn't need many scans."""

SPARE_DESCRIPTORS = 256
"""For databases, logs, child processes and outgoing connections."""

_RESET = struct.pack("ii", 1, 0)
_poll: Callable[[], Any] = monkey.get_original("select", "poll")  # gevent's poll would wait
_CLOSED_BY_PEER = getattr(select, "POLLRDHUP", 0)  # Linux: seen behind unread bytes too
_since = attrgetter("since")
_connections = gauge("http_connections", "Open connections, by state", ("state",))
_shed = counter("http_shed_total", "Connections closed to make room for others", ("state",))
_full = counter("http_full_total", "New connections refused because all connections were in use")


class TooManyConsumers(Unavailable):
    code = "TOO_MANY_CONSUMERS"
    default_message = "too many consumers are connected (`http.consumers_max`)"
    default_hint = "stop idle workers, or raise http.consumers_max in agentlip.toml"


class TooManyConnections(Unavailable):
    default_message = "all connections are in use (`http.connections_max`)"
    default_hint = "try again, or raise http.connections_max in agentlip.toml"


class Connection:
    """A client's socket, its state, and since which sweep.

    authenticated  the current request has a valid token or signature
    reserved       a reserved connection: only probes are served
    waited         the current request has waited for something to happen
    """

    __slots__ = (
        "authenticated", "peer", "pool", "reserved", "since", "sock", "state", "waited", "wake",
    )  # fmt: skip

    def __init__(self, pool: "ConnectionPool", sock: socket.socket, peer: tuple[str, str]) -> None:
        self.pool = pool
        self.sock = sock
        self.peer = peer
        self.authenticated = self.reserved = self.waited = False
        self.wake: Call | None = None  # wakes a request that lasts
        self.state = IDLE
        self.since = pool.sweeps

    def wait_for(self, state: int) -> None:
        self.state = state
        self.since = self.pool.sweeps

    def send(self, data: bytes) -> None:
        self.wait_for(SEND)
        try:
            # The common case: the kernel takes everything at once.
            sent = cast(Any, self.sock)._sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._send_rest(memoryview(data)[sent:])
        self.wait_for(WORK)

    def _send_rest(self, view: memoryview) -> None:
        """Send the rest. Bytes are counted as unsent until the kernel has taken them."""
        share = Unsent(self.pool.unsent, "http", self.cut)
        try:
            while view:
                share.set_size(len(view))
                view = view[self.sock.send(view) :]
        finally:
            share.set_size(0)

    def cut(self) -> None:
        """Shut the socket down: waiting reads end, and writes fail."""
        with suppress(OSError):  # the peer closed first
            if self.state == SEND:  # unsent bytes must not stay in the kernel
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.sock.shutdown(socket.SHUT_RDWR)

    def is_gone(self) -> bool:
        """Return whether the client has closed its end, so that nobody reads the response."""
        plain = cast(Any, self.sock)._sock
        try:
            if _CLOSED_BY_PEER:
                poll = _poll()
                poll.register(plain.fileno(), _CLOSED_BY_PEER)
                return bool(poll.poll(0))
            return not plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # closed on this side meanwhile
            return True

    def stay(self, wake: Call) -> Call:
        """Register a wait; see `caller.Caller`. A wait on a socket is a part of the socket's
        request."""
        if self.wake is not None:
            return _nothing
        counted = not self.authenticated
        if counted and self.pool.anonymous_count >= ANONYMOUS_MAX:
            raise TooManyAnonymous(details={"limit": ANONYMOUS_MAX}, retry_after=1.0)
        self.pool.anonymous_count += counted
        self.wake = wake
        self.waited = True

        def end() -> None:
            self.wake = None
            self.pool.anonymous_count -= counted

        return end

    def become_consumer(self, token_id: str) -> Call:
        """Count this connection among the consumers, and no longer in `http.connections_max`.
        Returns how to end that. Raises TooManyConsumers."""
        consumers, consumers_max = self.pool.consumers, self.pool.consumers_max
        if consumers.total() >= consumers_max:
            raise TooManyConsumers(details={"limit": consumers_max, "scope": "all"})
        if consumers[token_id] >= (token_max := int(consumers_max * TOKEN_SHARE)):
            raise TooManyConsumers(details={"limit": token_max, "scope": "token"})
        consumers[token_id] += 1
        return lambda: consumers.subtract((token_id,))

    def is_quiet(self) -> bool:
        """Return whether the connection is idle, without unread request bytes."""
        if self.state != IDLE:
            return False
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
        try:
            return not cast(Any, self.sock)._sock.recv(1, flags)
        except OSError:
            return True


class ConnectionPool:
    """All open connections, oldest first. Used on the event loop only."""

    def __init__(self, settings: HttpSettings, unsent: UnsentBudget) -> None:
        self.sweeps = 0  # the clock for all waits
        self.anonymous_count = 0  # all long requests without a valid token
        self.unsent = unsent
        self.connections_max = settings.connections_max
        self.consumers_max = settings.consumers_max
        self.consumers = Counter[str]()  # connected consumers by token, not in connections_max
        self._connections: dict[Connection, None] = {}
        self._reserved: dict[Connection, None] = {}
        self._seconds_max = {
            IDLE: KEEP_ALIVE_SECONDS,
            HEAD: HEAD_SECONDS_MAX,
            BODY: BODY_SECONDS_MAX,
            WORK: float("inf"),
            SEND: SEND_SECONDS_MAX,
            LINGER: LINGER_SECONDS_MAX - SWEEP_SECONDS,
        }

    def __iter__(self) -> Iterator[Connection]:
        return iter((*self._connections, *self._reserved))

    def open(self, sock: socket.socket, peer: tuple[str, str]) -> Connection | None:
        """Add a new client; None if even the reserved connections are in use."""
        connection = Connection(self, sock, peer)
        if self._has_capacity():
            self._connections[connection] = None
            return connection
        if len(self._reserved) >= PROBE_CONNECTIONS_MAX and not self._close_some(self._reserved):
            self.count_refusal()
            return None
        connection.reserved = True
        self._reserved[connection] = None
        return connection

    def promote(self, connection: Connection) -> bool:
        """Make a reserved connection an ordinary one, if the pool has capacity now."""
        if not self._has_capacity():
            return False
        self._reserved.pop(connection, None)
        self._connections[connection] = None
        connection.reserved = False
        return True

    def count_refusal(self) -> None:
        _full.inc()

    def close(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._reserved.pop(connection, None)

    def states(self) -> dict[str, int]:
        """Return how many connections are in each state."""
        counted = Counter(connection.state for connection in self)
        return {name: counted.get(state, 0) for state, name in enumerate(STATES)}

    def sweep(self) -> None:
        """Close connections that have waited longer than their limit, and end long requests
        whose clients have left."""
        self.sweeps += 1
        for connection in self:
            if connection.wake is not None and connection.is_gone():
                connection.wake()
            reserved = connection.reserved and connection.state in WAITING
            limit = self._seconds_max[LINGER if reserved else connection.state]
            if (self.sweeps - connection.since) * SWEEP_SECONDS > limit:
                connection.cut()
        for name, count in self.states().items():
            _connections.labels(name).set(count)

    def _has_capacity(self) -> bool:
        return (
            len(self._connections) - self.consumers.total() < self.connections_max
            or self._close_some(self._connections)
            or self._close_unauthenticated()
        )

    def _close_some(self, among: dict[Connection, None]) -> bool:
        """Close the oldest connections that only wait; False if there are none."""
        waiting = [connection for connection in among if connection.state in WAITING]
        return self._evict(waiting, 1 + len(waiting) // SHED_PART, among)

    def _close_unauthenticated(self) -> bool:
        """Close the oldest requests without a token, above their quota."""
        at_work = [
            connection
            for connection in self._connections
            if not connection.authenticated and connection.state not in WAITING
        ]
        surplus = len(at_work) - min(ANONYMOUS_MAX, self.connections_max // 2)
        wanted = 1 + surplus // SHED_PART if surplus > 0 else 0
        return self._evict(at_work, wanted, self._connections)

    def _evict(
        self, candidates: list[Connection], wanted: int, among: dict[Connection, None]
    ) -> bool:
        """Close the oldest `wanted` candidates; False if there are none."""
        oldest = sorted(candidates, key=_since)[:wanted]
        for connection in oldest:
            _shed.labels(STATES[connection.state]).inc()
            connection.cut()
            del among[connection]
        return bool(oldest)


def _nothing() -> None:
    pass


def descriptors(wanted: int) -> int:
    """Raise the limit on open files to `wanted`, if allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

"""The open connections: what each waits for, for how long, and who goes when there are too many.

A new client always gets a place while something may be closed for it. In this order:

1. connections that only wait (idle, a half-sent head or body, lingering), the oldest wait first;
2. requests, streams and sockets without a valid token, the oldest first, beyond
   `unauthenticated_connections_max` of them.

Requests that are worked on for callers with a token are never closed for others. When nothing can
be closed, a few reserved places are left. There a request is read, and refused with 503 unless it
is a health probe, so probes are answered however full the pool is.
"""

import resource
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import filterfalse, islice
from operator import attrgetter
from typing import Any, cast

from gevent import monkey

from appliance.kernel.errors import Unavailable
from appliance.kernel.metrics import counter, gauge
from appliance.web.settings import HttpSettings
from appliance.web.unsent import UnsentBudget

SWEEP_SECONDS = 0.5
IDLE, HEAD, BODY, WORK, SEND, LINGER = range(6)
STATES = ("idle", "head", "body", "work", "send", "linger")
WAITING = frozenset({IDLE, HEAD, BODY, LINGER})
SHED_PART = 16
"""One scan closes this part of what may be closed, so that a flood doesn't cost a scan each."""

SPARE_DESCRIPTORS = 256
"""For databases, logs, child processes and outgoing connections."""

_RESET = struct.pack("ii", 1, 0)
_poll: Callable[[], Any] = monkey.get_original("select", "poll")  # gevent's would wait
_CLOSED_BY_PEER = getattr(select, "POLLRDHUP", 0)  # Linux: seen behind unread bytes too
_since = attrgetter("since")
_connections = gauge("http_connections", "Open connections, by what they wait for", ("state",))
_overdue = counter(
    "http_overdue_total", "Connections closed because a time limit expired", ("state",)
)
_shed = counter("http_shed_total", "Connections closed to make room for others", ("state",))
_full = counter("http_full_total", "New connections refused because all were in use")


class TooManyConnections(Unavailable):
    sentence = "every connection is in use (http.connections_max)"
    advice = "try again, or raise http.connections_max in agentlip.toml"


class SweepClock:
    """The clock of all waits: how often the connections were looked through."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Connection:
    """A client's socket, what is being waited for, and since which sweep.

    authenticated  the request that is worked on came with a valid token or signature
    reserved       it has a reserved place: only probes are served
    """

    __slots__ = ("authenticated", "peer", "reserved", "since", "sock", "state", "sweeps", "unsent")

    def __init__(
        self, sweeps: SweepClock, sock: socket.socket, peer: tuple[str, str], unsent: UnsentBudget
    ) -> None:
        self.sweeps = sweeps
        self.sock = sock
        self.peer = peer
        self.unsent = unsent
        self.authenticated = self.reserved = False
        self.state = IDLE
        self.since = sweeps.count

    def wait_for(self, state: int) -> None:
        self.state = state
        self.since = self.sweeps.count

    def send(self, data: bytes) -> None:
        self.wait_for(SEND)
        try:
            # Nearly always the kernel takes all of it at once.
            sent = cast(Any, self.sock)._sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._send_rest(memoryview(data)[sent:])
        self.wait_for(WORK)

    def _send_rest(self, view: memoryview) -> None:
        """What waits for the peer is counted until the kernel has taken it."""
        share = self.unsent.share("http", self.cut)
        try:
            while view:
                share.hold(len(view))
                view = view[self.sock.send(view) :]
        finally:
            share.hold(0)

    def cut(self) -> None:
        """Wake whoever waits on the socket: reads end, writes fail."""
        with suppress(OSError):  # the peer was quicker
            if self.state == SEND:  # what it did not take must not stay in the kernel
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.sock.shutdown(socket.SHUT_RDWR)

    def is_gone(self) -> bool:
        """Whether the client has closed its end. Nobody reads an answer to it any more."""
        plain = cast(Any, self.sock)._sock
        try:
            if _CLOSED_BY_PEER:
                poll = _poll()
                poll.register(plain.fileno(), _CLOSED_BY_PEER)
                return bool(poll.poll(0))
            return not plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # closed here meanwhile
            return True

    def is_quiet(self) -> bool:
        """Idle, and nothing has arrived that was not read yet."""
        return self.state == IDLE and not self.has_arrived()

    def has_arrived(self) -> bool:
        """Idle, but a request is there that was not read yet."""
        if self.state != IDLE:
            return False
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
        try:
            return bool(cast(Any, self.sock)._sock.recv(1, flags))
        except OSError:
            return False


class ConnectionPool:
    """All open connections, oldest first. Used on the event loop only."""

    def __init__(self, settings: HttpSettings, unsent: UnsentBudget) -> None:
        self.sweeps = SweepClock()
        self._unsent = unsent
        self.connections_max = settings.connections_max
        self._unauthenticated_max = settings.unauthenticated_connections_max
        linger = settings.linger_seconds_max / SWEEP_SECONDS - 1  # never too late
        self._reserved_max = settings.probe_connections_max
        self._connections: dict[Connection, None] = {}
        self._reserved: dict[Connection, None] = {}
        self._limits = [
            seconds / SWEEP_SECONDS
            for seconds in (
                settings.keep_alive_seconds,
                settings.head_seconds_max,
                settings.body_seconds_max,
                float("inf"),
                settings.send_seconds_max,
            )
        ]
        self._limits.append(linger)
        self._reserved_limit = linger

    def __iter__(self) -> Iterator[Connection]:
        return iter((*self._connections, *self._reserved))

    def open(self, sock: socket.socket, peer: tuple[str, str]) -> Connection | None:
        """A place for a new client; None when even the reserved ones are taken."""
        connection = Connection(self.sweeps, sock, peer, self._unsent)
        if self._has_room():
            self._connections[connection] = None
            return connection
        if len(self._reserved) >= self._reserved_max and not self._close_some(self._reserved):
            self.count_refusal()
            return None
        connection.reserved = True
        self._reserved[connection] = None
        return connection

    def promote(self, connection: Connection) -> bool:
        """Give a connection an ordinary place instead of its reserved one, if there is one now."""
        if not self._has_room():
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
        """How many connections wait for what."""
        counted = Counter(connection.state for connection in self)
        return {name: counted.get(state, 0) for state, name in enumerate(STATES)}

    def sweep(self) -> None:
        """Cut off connections whose wait is over its limit."""
        self.sweeps.count += 1
        for connection in self:
            limit = self._limits[connection.state]
            if connection.reserved and connection.state in WAITING:
                limit = min(limit, self._reserved_limit)
            if self.sweeps.count - connection.since > limit:
                _overdue.labels(STATES[connection.state]).inc()
                connection.cut()
        for name, count in self.states().items():
            _connections.labels(name).set(count)

    def _has_room(self) -> bool:
        return (
            len(self._connections) < self.connections_max
            or self._close_some(self._connections)
            or self._close_unauthenticated()
        )

    def _close_some(self, among: dict[Connection, None]) -> bool:
        """Close the oldest of those that only wait; whether there were any."""
        waiting = sorted([one for one in among if one.state in WAITING], key=_since)
        wanted = 1 + len(waiting) // SHED_PART
        # A request that has just arrived is spared, unless there is nothing else.
        if self._shed(islice(filterfalse(Connection.has_arrived, waiting), wanted), among):
            return True
        return self._shed(waiting[:wanted], among)

    def _close_unauthenticated(self) -> bool:
        """Close the oldest work for callers without a token, beyond their quota."""
        at_work = sorted(
            [
                one
                for one in self._connections
                if not one.authenticated and one.state not in WAITING
            ],
            key=_since,
        )
        surplus = len(at_work) - min(self._unauthenticated_max, self.connections_max // 2)
        wanted = 1 + surplus // SHED_PART if surplus > 0 else 0
        return self._shed(at_work[:wanted], self._connections)

    def _shed(self, connections: Iterable[Connection], among: dict[Connection, None]) -> bool:
        before = len(among)
        for connection in connections:
            _shed.labels(STATES[connection.state]).inc()
            connection.cut()
            del among[connection]
        return len(among) < before


def descriptors(wanted: int) -> int:
    """Raise this process's limit on open files to `wanted`, if allowed; the limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

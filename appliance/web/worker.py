"""Serves HTTP in one process, on one event loop.

gunicorn frames bodies and responses; `parser.py` reads heads. Differences from its gevent
worker, which works for an arbiter (heartbeat file, parent check, polling, restarts):

- head and body of a response are sent together, and a handler yields after each request, so
  that a busy connection doesn't delay others;
- every wait for a client has a time limit (first byte, head, body, receiving the response),
  enforced by one sweep over all connections instead of a timer per request;
- a full pool makes room for new connections (`connections.py`) instead of not accepting them;
- a stop closes listeners and idle connections at once, and running requests have
  `DRAIN_SECONDS_MAX`;
- parser errors get a JSON response, and are not logged with their text.

The WSGI application may take over the socket for a WebSocket: it uses
`environ["gunicorn.socket"]` and the bytes from `environ["agentlip.buffered"]()`, and returns
ALREADY_HANDLED when it is done. The worker then closes the socket.
"""

# gunicorn and gevent carry no types.
# mypy: allow-untyped-calls

import email.utils
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, cast

import gevent
from gevent.event import Event
from gevent.pool import Group
from gevent.server import StreamServer
from gunicorn.http.errors import ParseException

from appliance.kernel import caller
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import in_step
from appliance.web.connections import (
    HEAD,
    IDLE,
    LINGER,
    PROBE_CONNECTIONS_MAX,
    SPARE_DESCRIPTORS,
    SWEEP_SECONDS,
    WORK,
    Connection,
    ConnectionPool,
    descriptors,
)
from appliance.web.exchange import (
    ALREADY_HANDLED,
    BufferedResponse,
    ConnectionReserved,
    environ_base,
    environ_of,
    refusal,
    unread_bytes,
    whole,
)
from appliance.web.parser import StrictParser, StrictRequest, parser_settings
from appliance.web.settings import HttpSettings
from appliance.web.unsent import UNSENT_BYTES_MAX, UnsentBudget

LINGER_BYTES_MAX = 16 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024

DRAIN_SECONDS_MAX = 5.0  # time for running requests after a stop; containers have ten
PROBES = frozenset({"/health", "/-/healthy", "/-/ready"})
"""Served on reserved connections when the pool is full."""

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@lru_cache(maxsize=1)
def date_of(second: int) -> str:
    """Return a time as in the header Date."""
    return email.utils.formatdate(second, usegmt=True)


class Listener(StreamServer):
    """Passes every new connection to its handler at once, without a greenlet."""

    max_accept = 16  # then accepted requests run, before more connections come

    def do_handle(self, client: socket.socket, address: Any) -> None:
        self.handle(client, address)


class Worker:
    """A server for `application` on `listeners` until `stop()`; `run()` blocks that long.

    `on_signal` is called with the number of SIGTERM or SIGINT, in another greenlet.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        application: WSGI,
        settings: HttpSettings,
        clock: Clock,
        log: Log,
        on_signal: Callable[[int], None],
        unsent: UnsentBudget | None = None,
    ) -> None:
        self.sockets = list(listeners)
        self.wsgi = application
        self.settings = settings
        self.log = log
        self.cfg = parser_settings()
        self.alive = True
        self._clock = clock
        self._on_signal = on_signal
        self._stopping = Event()
        self._pool = ConnectionPool(settings, unsent or UnsentBudget(UNSENT_BYTES_MAX, clock))
        self._greenlets = Group()

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, self._on_signal, int(number))
        gevent.signal_handler(signal.SIGUSR1, self._log_states)

    def stop(self) -> None:
        """Begin the drain. May be called from any greenlet, repeatedly."""
        self.alive = False
        self._stopping.set()

    def run(self) -> None:
        """Serve until a stop was requested and the drain is over."""
        self._fit_descriptors()
        self._watch_signals()
        servers = []
        for listener in self.sockets:
            listener.setblocking(True)
            name = listener.getsockname()
            address = (str(name[0]), str(name[1])) if isinstance(name, tuple) else None
            server = Listener(listener, partial(self._accept, environ_base(self.cfg, address)))
            server.start()
            servers.append(server)
        sweeper = gevent.spawn(self._sweep_for_ever)
        self._stopping.wait()
        try:
            self._drain(servers)
        finally:
            sweeper.kill()

    def _accept(self, base: dict[str, Any], client: socket.socket, addr: Any) -> None:
        """Add a new connection to the pool. Runs in gevent's hub, so it never waits."""
        if isinstance(addr, tuple):
            peer = (str(addr[0]), str(addr[1]))
        else:
            peer = ("unix", str(client.fileno()))
        connection = self._pool.open(client, peer)
        if connection is None:
            client.close()
        else:
            self._greenlets.spawn(self._serve, base, connection, addr)

    def _serve(self, base: dict[str, Any], connection: Connection, addr: Any) -> None:
        """Serve a connection's requests, one after another."""
        caller.current.set(connection)
        parser = StrictParser(self.cfg, connection.sock, addr)
        try:
            if isinstance(addr, tuple):
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._receive(connection, parser):
                if not self._serve_request(base, connection, parser):
                    break
                gevent.sleep(0)
        except (ParseException, MemoryError) as error:
            self._refuse(connection, error)
        except (OSError, StopIteration):
            pass  # the client left, or a limit closed the connection
        finally:
            self._pool.close(connection)
            connection.sock.close()

    def handle_request(
        self,
        base: dict[str, Any],
        request: StrictRequest,
        connection: Connection,
        parser: StrictParser,
    ) -> bool:
        """Run the application and send its response; returns whether to keep the connection."""
        response = BufferedResponse(request, connection, self.cfg, self._date_header())
        environ, body = environ_of(base, request, connection, parser)
        parts: Any = None
        try:
            parts = self.wsgi(environ, response.start_response)
            if parts is ALREADY_HANDLED:
                return False
            # A long body that was not read is not skipped.
            unread = (unread_bytes(request) or 0) > RECEIVE_BYTES
            if body.broken or unread or not self.alive or connection.reserved:
                response.force_close()
            for part in parts:
                response.write(part)
            response.close()
        except OSError:
            raise
        except MemoryError:
            if response.headers_sent:
                return False
            raise
        except Exception as error:
            self.log.error("unexpected error outside the error handlers", error)
            if not response.headers_sent:
                connection.send(whole(500, ApplianceError(), self._date_header()))
            return False
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return not response.should_close()

    def _receive(self, connection: Connection, parser: StrictParser) -> bool:
        """Receive bytes of the next request for the parser; return False if there is none."""
        data = parser.unreader.take_buffered()
        if not data:
            if not self.alive and parser.req_count:
                return False
            connection.wait_for(IDLE)
            data = connection.sock.recv(RECEIVE_BYTES)
        connection.wait_for(HEAD)
        parser.unreader.unread(data)
        return bool(data)

    def _serve_request(
        self, base: dict[str, Any], connection: Connection, parser: StrictParser
    ) -> bool:
        request = cast(StrictRequest, next(parser))
        if connection.reserved and not (request.path in PROBES or self._pool.promote(connection)):
            raise ConnectionReserved
        connection.wait_for(WORK)
        keeps = self.handle_request(base, request, connection, parser)
        if unread_bytes(request) != 0:
            if not keeps:
                self._linger(connection)
                return False
            connection.wait_for(LINGER)
            if not parser.finish_body(max_bytes=RECEIVE_BYTES):
                self._linger(connection)
                return False
        parser.mesg = None  # complete, so the parser need not check again
        return keeps

    def _linger(self, connection: Connection) -> None:
        """Read remaining bytes, so that a reset doesn't discard the last response."""
        if connection.state != LINGER:
            connection.wait_for(LINGER)
        taken = 0
        with suppress(OSError):  # closed by the sweep or by the client
            connection.sock.shutdown(socket.SHUT_WR)
            while taken < LINGER_BYTES_MAX:
                data = connection.sock.recv(RECEIVE_BYTES)
                if not data:
                    return
                taken += len(data)
                gevent.sleep(0)

    def _refuse(self, connection: Connection, error: Exception) -> None:
        status, failure = refusal(error)
        if isinstance(error, ConnectionReserved):
            self._pool.count_refusal()
        with suppress(OSError):  # the client has left
            connection.send(whole(status, failure, self._date_header()))
            self._linger(connection)

    def _date_header(self) -> str:
        return date_of(self._clock.now_ms() // 1000)

    def _sweep_for_ever(self) -> None:
        while True:
            gevent.sleep(in_step(self._clock.monotonic(), SWEEP_SECONDS))
            self._pool.sweep()

    def _fit_descriptors(self) -> None:
        """Raise the limit on open files for all connections, or allow fewer connections."""
        others = SPARE_DESCRIPTORS + PROBE_CONNECTIONS_MAX
        wanted = self.settings.connections_max + self.settings.consumers_max + others
        limit = descriptors(wanted)
        if limit < wanted:
            available = max(limit - others, 2 + limit // 2)
            consumers_max = min(self.settings.consumers_max, available // 2)
            left = available - consumers_max
            self._pool.consumers_max = consumers_max
            self._pool.connections_max = min(self.settings.connections_max, left)
            self.log.warning(
                "the limit on open files allows fewer connections than http.connections_max",
                open_files_max=limit,
                connections_max=self._pool.connections_max,
                consumers_max=self._pool.consumers_max,
                hint=f"raise the limit to {wanted} (ulimit -n, LimitNOFILE)",
            )

    def _drain(self, servers: list[Listener]) -> None:
        for server in servers:
            server.close()
        for connection in self._pool:
            if connection.is_quiet():
                connection.cut()
        if not self._greenlets.join(timeout=DRAIN_SECONDS_MAX):
            self.log.warning("requests were aborted when the drain ended", **self._pool.states())
            self._greenlets.kill(block=True, timeout=1)

    def _log_states(self) -> None:
        self.log.info("connections", **{f"{k}_count": n for k, n in self._pool.states().items()})

"""gunicorn's gevent worker, run alone: one process, one event loop, no arbiter above it.

gunicorn gives the parser of requests and the framing of responses. What its worker does for
an arbiter (heartbeat file, parent check, one-second polling, restarts) is left out, and four
things are done otherwise:

- a response leaves in one send, head and body together, and a handler yields after each
  request, so that one busy connection doesn't hold up the others;
- every wait for a peer has a limit (first byte, head, body, taking what is sent), watched by
  one sweep over all connections instead of a timer for each request;
- a full pool makes room for new connections (`connections.py`) instead of not accepting them;
- a stop is an event: listeners close, idle connections close at once, requests in flight
  get `drain_seconds_max`;
- what the parser refuses is answered in JSON and logged without its text.

The WSGI application may take the socket for itself (WebSocket): it uses
`environ["gunicorn.socket"]` and what `environ["agentlip.buffered"]()` had already read, and
returns ALREADY_HANDLED when it is done; the worker then only closes.
"""

# gunicorn and gevent carry no types.
# mypy: allow-untyped-calls

import email.utils
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import gevent
from gevent import socket as gevent_socket
from gevent.event import Event
from gevent.pool import Group
from gevent.server import StreamServer
from gunicorn.http.errors import ParseException
from gunicorn.workers.ggevent import GeventWorker

from appliance.kernel import caller
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import in_step
from appliance.kernel.metrics import counter
from appliance.web.connections import (
    HEAD,
    IDLE,
    LINGER,
    SPARE_DESCRIPTORS,
    SWEEP_SECONDS,
    WORK,
    Connection,
    ConnectionPool,
    descriptors,
)
from appliance.web.exchange import (
    BufferedResponse,
    PlaceReserved,
    environ_base,
    environ_of,
    is_read,
    refusal,
    unread_bytes,
    whole,
)
from appliance.web.parser import StrictParser, StrictRequest, parser_settings
from appliance.web.settings import HttpSettings
from appliance.web.unsent import UnsentBudget

LINGER_BYTES_MAX = 16 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024

_malformed = counter("http_malformed_total", "Requests that could not be parsed", ("status",))

PROBES = frozenset({"/health", "/-/healthy", "/-/ready"})
"""Served on reserved places when every other one is taken."""

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Listener(StreamServer):
    """Hands every new connection to `accept` at once, however many there are."""

    max_accept = 16  # then what was accepted is served, before more push it out of a full pool

    def __init__(
        self, listener: socket.socket, accept: Callable[[socket.socket, Any], None]
    ) -> None:
        super().__init__(listener, accept)
        self._accept = accept

    def do_handle(self, client: socket.socket, address: Any) -> None:
        self._accept(client, address)


class Worker(GeventWorker):
    """Serves `application` on `listeners` until `stop()`; `init_process()` blocks that long.

    `on_signal` is called with the number of SIGTERM or SIGINT, in a greenlet of its own.
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
        # Not gunicorn's __init__: it makes a heartbeat file that only an arbiter reads.
        self.sockets = list(listeners)
        self.wsgi = application
        self.settings = settings
        self.log = log
        self.cfg = parser_settings(settings)
        self.alive = True
        self._unsent = unsent or UnsentBudget(settings.unsent_bytes_max, clock)
        self._clock = clock
        self._on_signal = on_signal
        self._stopping = Event()
        self._pool = ConnectionPool(settings, self._unsent)
        self._greenlets = Group()
        self._date_at, self._date = -1, ""

    def init_process(self) -> None:
        """Serve. Returns when a stop was asked for and the drain is over."""
        self.patch()
        self._fit_descriptors()
        self.init_signals()
        self.run()

    def patch(self) -> None:
        """Listeners become gevent's. The rest was patched before anything was imported."""
        evented: Any = getattr(gevent_socket, "socket")  # noqa: B009 - filled in at run time
        self.sockets = [
            listener
            if isinstance(listener, evented)
            else evented(listener.family, listener.type, fileno=listener.detach())
            for listener in self.sockets
        ]

    def init_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, self._on_signal, int(number))
        gevent.signal_handler(signal.SIGUSR1, self._tell)

    def notify(self) -> None:
        """No arbiter watches."""

    def stop(self) -> None:
        """Begin the drain. Safe from any greenlet, any number of times."""
        self.alive = False
        self._stopping.set()

    def states(self) -> dict[str, int]:
        """How many connections wait for what."""
        return self._pool.states()

    def run(self) -> None:
        servers = []
        for listener in self.sockets:
            listener.setblocking(True)
            name = listener.getsockname()
            place = (str(name[0]), str(name[1])) if isinstance(name, tuple) else None
            server = Listener(listener, partial(self._accept, environ_base(self.cfg, place)))
            server.start()
            servers.append(server)
        sweeper = gevent.spawn(self._sweep_for_ever)
        self._stopping.wait()
        try:
            self._drain(servers)
        finally:
            sweeper.kill()

    def _accept(self, base: dict[str, Any], client: socket.socket, addr: Any) -> None:
        """Find a place for a new connection. Runs in the event loop, so it never waits."""
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
        """A connection's life: requests one after another until somebody has enough."""
        caller.current.set(connection)
        parser = StrictParser(self.cfg, connection.sock, addr)
        try:
            if isinstance(addr, tuple):
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._receive(connection, parser):
                if not self._serve_one(base, connection, parser):
                    break
                gevent.sleep(0)
        except ParseException as error:
            self._refuse(connection, error)
        except (OSError, StopIteration):
            pass  # the peer left, or a limit cut it off
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
        """Run the application and send what it says; whether the connection goes on."""
        response = BufferedResponse(request, connection, self.cfg, self._date_header())
        environ, body = environ_of(base, request, connection, parser)
        parts: Any = None
        try:
            parts = self.wsgi(environ, response.start_response)
            if self.is_already_handled(parts):
                return False
            # An uninvited body may come or not, so no next request can be found behind it;
            # and a long one that nobody wanted is not read to its end.
            unread = unread_bytes(request) > RECEIVE_BYTES
            if body.uninvited or unread or not self.alive or connection.reserved:
                response.force_close()
            for part in parts:
                response.write(part)
            response.close()
        except OSError:
            raise
        except Exception as error:
            self.log.error("the application failed outside its own handlers", error)
            if not response.headers_sent:
                connection.send(whole(500, ApplianceError(), self._date_header()))
            return False
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return not response.should_close()

    def _receive(self, connection: Connection, parser: StrictParser) -> bool:
        """Bytes of the next request are in the parser's hands; False: there is none."""
        held = parser.unreader.take_buffered()
        if not held:
            if not self.alive and parser.req_count:
                return False
            connection.wait_for(IDLE)
            held = connection.sock.recv(RECEIVE_BYTES)
        connection.wait_for(HEAD)
        parser.unreader.unread(held)
        return bool(held)

    def _serve_one(
        self, base: dict[str, Any], connection: Connection, parser: StrictParser
    ) -> bool:
        request = cast(StrictRequest, next(parser))
        if connection.reserved and not (request.path in PROBES or self._pool.promote(connection)):
            raise PlaceReserved
        connection.wait_for(WORK)
        if not self.handle_request(base, request, connection, parser):
            if not is_read(request):
                self._linger(connection)
            return False
        if not is_read(request):
            connection.wait_for(LINGER)
            if not parser.finish_body(max_bytes=RECEIVE_BYTES):
                self._linger(connection)
                return False
        parser.mesg = None  # nothing of it is left; saves the parser from asking again
        return True

    def _linger(self, connection: Connection) -> None:
        """Take what still comes, so that our last answer isn't lost in a reset."""
        if connection.state != LINGER:
            connection.wait_for(LINGER)
        taken = 0
        with suppress(OSError):  # cut by the sweep, or by the peer
            connection.sock.shutdown(socket.SHUT_WR)
            while taken < LINGER_BYTES_MAX:
                data = connection.sock.recv(RECEIVE_BYTES)
                if not data:
                    return
                taken += len(data)
                gevent.sleep(0)

    def _refuse(self, connection: Connection, error: Exception) -> None:
        status, told = refusal(error)
        if isinstance(error, PlaceReserved):
            self._pool.count_refusal()
        else:
            _malformed.labels(str(status)).inc()
        with suppress(OSError):  # nobody is left to hear it
            connection.send(whole(status, told, self._date_header()))
            self._linger(connection)

    def _date_header(self) -> str:
        second = self._clock.now_ms() // 1000
        if second != self._date_at:
            self._date_at = second
            self._date = email.utils.formatdate(second, usegmt=True)
        return self._date

    def _sweep_for_ever(self) -> None:
        while True:
            gevent.sleep(in_step(self._clock.monotonic(), SWEEP_SECONDS))
            self._pool.sweep()

    def _fit_descriptors(self) -> None:
        """Allow as many open files as connections need, or fewer connections."""
        others = SPARE_DESCRIPTORS + self.settings.probe_connections_max
        wanted = self.settings.connections_max + others
        limit = descriptors(wanted)
        if limit < wanted:
            self._pool.connections_max = max(limit - others, 1 + limit // 2)
            self.log.warning(
                "the limit on open files allows fewer connections than http.connections_max",
                open_files_max=limit,
                connections_max=self._pool.connections_max,
                hint=f"raise the limit to {wanted} (ulimit -n, LimitNOFILE)",
            )

    def _drain(self, servers: list[Listener]) -> None:
        for server in servers:
            server.close()
        for connection in self._pool:
            if connection.is_quiet():
                connection.cut()
        if not self._greenlets.join(timeout=self.settings.drain_seconds_max):
            self.log.warning("requests were cut off at the end of the drain", **self.states())
            self._greenlets.kill(block=True, timeout=1)

    def _tell(self) -> None:
        self.log.info("connections", **{f"{k}_count": n for k, n in self.states().items()})

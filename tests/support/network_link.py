"""A TCP link between a client and a served appliance, which a test delays, holds and cuts."""

import select
import socket
import threading
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Self

from appliance.sdk.discovery import Endpoint

READ_BYTES = 65536
POLL_SECONDS = 0.01


class NetworkLink:
    """`delay_seconds` of each direction; while `held`, what the client sends doesn't arrive."""

    def __init__(self, hub, delay_seconds: float = 0.0) -> None:
        self.target = ("127.0.0.1", int(hub.url.rpartition(":")[2]))
        self.token = hub.token
        self.delay_seconds = delay_seconds
        self.held = False
        self.waiting_bytes = 0  # from the client whose connection is the newest
        self._ended = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._accepting.join(10)
        self._listener.close()
        self.cut()

    def locate(self) -> Endpoint:
        return Endpoint("127.0.0.1", self._listener.getsockname()[1], token=self.token)

    def cut(self) -> None:
        """Break all connections. Bytes that are held or delayed are lost."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ended.is_set():
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(self.target, 5)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((client, server))
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Both directions, each byte `delay_seconds` after it came."""
        waiting: dict[socket.socket, deque[tuple[float, bytes]]] = {
            client: deque(),
            server: deque(),
        }
        try:
            while not self._ended.is_set():
                for end in select.select([client, server], [], [], POLL_SECONDS)[0]:
                    data = end.recv(READ_BYTES)
                    if not data:
                        return
                    waiting[end].append((monotonic() + self.delay_seconds, data))
                for end, other in ((client, server), (server, client)):
                    held = self.held and end is client
                    while waiting[end] and not held and waiting[end][0][0] <= monotonic():
                        other.sendall(waiting[end].popleft()[1])
                self.waiting_bytes = sum(len(data) for _, data in waiting[client])
        except OSError:
            pass
        finally:
            client.close()
            server.close()

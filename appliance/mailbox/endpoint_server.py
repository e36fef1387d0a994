"""Serves `agentlip network inbox --serve` over HTTP, with a thread for each connection."""

import socket
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

CONNECTIONS_MAX = 64  # a proxy opens one for each request; one more closes the oldest


class QuietHandler(WSGIRequestHandler):
    timeout = 10  # seconds for each wait for bytes

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002
        pass


class EndpointServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[Any, None] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        for oldest in list(self._open)[: 1 - CONNECTIONS_MAX]:
            self._open.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that ends the connection early, which is not an error."""

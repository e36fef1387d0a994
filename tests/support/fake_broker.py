"""A broker as senders see it: dedupe by mesh and id, and every kind of trouble on demand."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox.target import BatchTarget, Outgoing, Result, item_of, result_of

Answer = tuple[int, Any, float | None]


class FakeBroker:
    """What was accepted, once for each id, in order; `trouble` may answer in its place.

    `trouble(item)` gives an Answer instead of accepting; `lost(item)`, asked after accepting,
    true where the answer is lost on its way back. `trouble` may also raise: then nothing was
    accepted.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.received_ids: list[str] = []
        self.fault: Callable[[dict[str, Any]], Answer | None] = lambda _item: None
        self.reply_lost: Callable[[dict[str, Any]], bool] = lambda _item: False
        self.history_available = True

    @property
    def bodies(self) -> list[str]:
        return [row["body"] for row in self.rows.values()]

    def take(self, item: dict[str, Any]) -> Answer:
        client_id = item["client_message_id"]
        self.received_ids.append(client_id)
        row = self.rows.get((item["mesh"], client_id))
        fault = self.fault(item)
        if fault is not None and (row is None or fault[0] >= 500):
            return fault  # a known id is looked up before anything is refused
        digest = fingerprint(
            item["destination_kind"],
            item["destination_ref"],
            item["body"].encode(),
            reply_to_id=item.get("reply_to_id"),
            priority=item["priority"],
            meta=item.get("meta"),
        )
        assert digest.hex() == item["request_fingerprint"], "the fingerprint is another one here"
        if row is None:
            row = {**item, "broker_message_id": f"bm_{len(self.rows) + 1}"}
            self.rows[item["mesh"], client_id] = row
            status = 201
        elif row["request_fingerprint"] != item["request_fingerprint"]:
            return (
                409,
                {
                    "error": "idempotency_key_reused",
                    "client_message_id": client_id,
                    "conflict": "request_fingerprint_mismatch",
                    "broker_fingerprint_prefix": prefix(bytes.fromhex(row["request_fingerprint"])),
                },
                None,
            )
        else:
            status = 200
        if self.reply_lost(item):
            return 504, None, None
        return (
            status,
            {
                "client_message_id": client_id,
                "broker_message_id": row["broker_message_id"],
                "history_id": "h" + row["broker_message_id"],
                "duplicate": status == 200,
                "history_available": self.history_available,
            },
            None,
        )


def always(status: int, body: Any = None, wait: float | None = None) -> Callable[[Any], Answer]:
    """`trouble` that gives each item the same answer."""
    return lambda _item: (status, body, wait)


class ScriptedTarget(BatchTarget):
    """A target on a ledger, without a network."""

    name = "broker"

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.batches: list[int] = []

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        self.batches.append(len(sends))
        return [result_of(send, *self.broker.take(item_of(send))) for send in sends]


class FakeBrokerServer:
    """A broker on HTTP. `before(path, body)` may answer (status, headers, bytes) itself, or raise
    Cut to close the connection; `after(path)` true cuts it instead of answering."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.before: Callable[[str, bytes], tuple[int, dict[str, str], bytes] | None] = (
            lambda _path, _body: None
        )
        self.after: Callable[[str], bool] = lambda _path: False
        self.url = ""
        self.broker_id = "b" * 32
        self.refusals = 0


class ConnectionCut(Exception):
    pass


def respond(server: FakeBrokerServer, lock: Any, content: Any) -> tuple[int, dict[str, str], bytes]:
    with lock:
        if "items" not in content:
            status, reply, retry_after = server.broker.take(content)
            headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
            return status, headers, json.dumps(reply).encode()
        results = [server.broker.take(item) for item in content["items"]]
    reply = [
        {
            "status": status,
            "body": {**(body or {}), **({"retry_after": retry_after} if retry_after else {})},
        }
        for status, body, retry_after in results
    ]
    return 200, {}, json.dumps({"results": reply}).encode()


@contextmanager
def serve_fake_broker():
    """A served Scene, on a port of its own."""
    server = FakeBrokerServer()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            server.connections += 1
            super().setup()

        def do_GET(self):
            self.refuse_other_broker()

        def refuse_other_broker(self):
            """The reply to a request that is signed for another broker."""
            server.refusals += 1
            reply = {"error": "the signature is for another broker", "code": "WRONG_BROKER",
                    "details": {"broker_id": server.broker_id}}  # fmt: skip
            self.answer(401, {}, json.dumps(reply).encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("X-Agentlip-Broker", server.broker_id) != server.broker_id:
                self.refuse_other_broker()
                return
            server.requests.append(
                (self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            )
            try:
                given = server.before(self.path, body)
            except ConnectionCut:
                self.close_connection = True
                return
            status, headers, content = given or respond(server, lock, json.loads(body))
            if server.after(self.path):
                self.close_connection = True
                return
            self.answer(status, headers, content)

        def answer(self, status, headers, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args):
            pass

    class HttpServer(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_args):
            pass

    http_server = HttpServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{http_server.server_port}"
    try:
        yield server
    finally:
        http_server.shutdown()
        http_server.server_close()
        thread.join()


def signed_text(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """What a broker verifies the signature over."""
    digest = hashlib.sha256(body).hexdigest()
    broker, stamp = headers["x-agentlip-broker"], headers["x-agentlip-timestamp"]
    nonce = headers["x-agentlip-nonce"]
    return f"agentlip-broker-v2\nPOST\n{broker}\n{path}\n\n{stamp}\n{nonce}\n{digest}".encode()

"""A broker as senders see it: dedupe by mesh and id, and every kind of trouble on demand."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox.target import Outgoing, Result, item_of, result_of

Answer = tuple[int, Any, float | None]


class Ledger:
    """What was accepted, once for each id, in order; `trouble` may answer in its place.

    `trouble(item)` gives an Answer instead of accepting; `lost(item)`, asked after accepting,
    true where the answer is lost on its way back. `trouble` may also raise: then nothing was
    accepted.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.trouble: Callable[[dict[str, Any]], Answer | None] = lambda _item: None
        self.lost: Callable[[dict[str, Any]], bool] = lambda _item: False
        self.history_available = True

    @property
    def bodies(self) -> list[str]:
        return [row["body"] for row in self.rows.values()]

    def take(self, item: dict[str, Any]) -> Answer:
        client_id = item["client_message_id"]
        self.asked.append(client_id)
        known = self.rows.get((item["mesh"], client_id))
        refused = self.trouble(item)
        if refused is not None and (known is None or refused[0] >= 500):
            return refused  # what is known is looked up before anything is refused
        digest = fingerprint(
            item["destination_kind"],
            item["destination_ref"],
            item["body"].encode(),
            reply_to_id=item.get("reply_to_id"),
            priority=item["priority"],
            meta=item.get("meta"),
        )
        assert digest.hex() == item["request_fingerprint"], "the fingerprint is another one here"
        if known is None:
            known = {**item, "broker_message_id": f"bm_{len(self.rows) + 1}"}
            self.rows[item["mesh"], client_id] = known
            status = 201
        elif known["request_fingerprint"] != item["request_fingerprint"]:
            return (
                409,
                {
                    "error": "idempotency_key_reused",
                    "client_message_id": client_id,
                    "conflict": "request_fingerprint_mismatch",
                    "broker_fingerprint_prefix": prefix(
                        bytes.fromhex(known["request_fingerprint"])
                    ),
                },
                None,
            )
        else:
            status = 200
        if self.lost(item):
            return 504, None, None
        return (
            status,
            {
                "client_message_id": client_id,
                "broker_message_id": known["broker_message_id"],
                "history_id": "h" + known["broker_message_id"],
                "duplicate": status == 200,
                "history_available": self.history_available,
            },
            None,
        )


class ScriptedTarget:
    """A target on a ledger, without a network."""

    name = "broker"

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.batches: list[int] = []

    def deliver(self, send: Outgoing) -> Result:
        return self.deliver_many([send])[0]

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        self.batches.append(len(sends))
        return [result_of(send, *self.ledger.take(item_of(send))) for send in sends]


class Scene:
    """A broker on HTTP. `before(path, body)` may answer (status, headers, bytes) itself, or raise
    Cut to close the connection; `after(path)` true cuts it instead of answering."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.before: Callable[[str, bytes], tuple[int, dict[str, str], bytes] | None] = (
            lambda _path, _body: None
        )
        self.after: Callable[[str], bool] = lambda _path: False
        self.url = ""
        self.broker_id = "b" * 32
        self.refusals = 0


class Cut(Exception):
    pass


def judged(scene: Scene, lock: Any, content: Any) -> tuple[int, dict[str, str], bytes]:
    with lock:
        if "items" not in content:
            status, told, wait = scene.ledger.take(content)
            headers = {} if wait is None else {"Retry-After": str(wait)}
            return status, headers, json.dumps(told).encode()
        results = [scene.ledger.take(item) for item in content["items"]]
    told = [
        {
            "status": status,
            "body": {**(body or {}), **({"retry_after": wait} if wait else {})},
        }
        for status, body, wait in results
    ]
    return 200, {}, json.dumps({"results": told}).encode()


@contextmanager
def broker():
    """A served Scene, on a port of its own."""
    scene = Scene()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            scene.connections += 1
            super().setup()

        def do_GET(self):
            self.refuse_other_broker()

        def refuse_other_broker(self):
            """What a signed request for another broker is answered."""
            scene.refusals += 1
            told = {"error": "the signature is for another broker", "code": "WRONG_BROKER",
                    "details": {"broker_id": scene.broker_id}}  # fmt: skip
            self.answer(401, {}, json.dumps(told).encode())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("X-Agentlip-Broker", scene.broker_id) != scene.broker_id:
                self.refuse_other_broker()
                return
            scene.requests.append(
                (self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            )
            try:
                given = scene.before(self.path, body)
            except Cut:
                self.close_connection = True
                return
            status, headers, content = given or judged(scene, lock, json.loads(body))
            if scene.after(self.path):
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

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_args):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    scene.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield scene
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def signed_text(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """What a broker verifies the signature over."""
    digest = hashlib.sha256(body).hexdigest()
    broker, stamp = headers["x-agentlip-broker"], headers["x-agentlip-timestamp"]
    nonce = headers["x-agentlip-nonce"]
    return f"agentlip-broker-v2\nPOST\n{broker}\n{path}\n\n{stamp}\n{nonce}\n{digest}".encode()

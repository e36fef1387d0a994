"""A broker as senders see it: dedupe by mesh and id, and every kind of trouble on demand."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox.target import DeliveryTarget, Outgoing, Result, item_of, result_of
from tests.support.http_server import http_server

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


class ScriptedTarget(DeliveryTarget):
    """A target on a ledger, without a network."""

    name = "broker"
    takes_batches = True

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
    """A served broker, on a port of its own."""
    broker = FakeBrokerServer()
    lock = threading.Lock()

    def refuse_other_broker():
        """The reply to a request that is signed for another broker."""
        broker.refusals += 1
        reply = {"error": "the signature is for another broker", "code": "WRONG_BROKER",
                "details": {"broker_id": broker.broker_id}}  # fmt: skip
        return 401, {}, json.dumps(reply).encode()

    def reply(request):
        broker.connections = server.connections
        signed_for = request.headers.get("x-agentlip-broker", broker.broker_id)
        if request.method == "GET" or signed_for != broker.broker_id:
            return refuse_other_broker()
        broker.requests.append((request.path, request.headers, request.body))
        try:
            given = broker.before(request.path, request.body)
        except ConnectionCut:
            return None
        given = given or respond(broker, lock, json.loads(request.body))
        return None if broker.after(request.path) else given

    with http_server(reply) as server:
        broker.url = f"http://127.0.0.1:{server.port}"
        yield broker


def signed_text(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """What a broker verifies the signature over."""
    digest = hashlib.sha256(body).hexdigest()
    broker, stamp = headers["x-agentlip-broker"], headers["x-agentlip-timestamp"]
    nonce = headers["x-agentlip-nonce"]
    return f"agentlip-broker-v2\nPOST\n{broker}\n{path}\n\n{stamp}\n{nonce}\n{digest}".encode()

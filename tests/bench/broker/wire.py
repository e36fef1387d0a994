"""Clients of the broker's benchmark: signed requests made beforehand, and a link that acks."""

import json
import re
import time
from functools import cache
from typing import Any

from appliance.kernel.ids import random_id
from appliance.mesh.fingerprint import fingerprint
from appliance.mesh.signing import hello_text, public_key, request_text, sign
from tests.bench.client import NOW, Http, WebSocket, encode
from tests.bench.target import RowFailed, Target

MESH, TOPIC = "bench", "alerts"
SENDER_SEED, RECEIVER_SEED = "11" * 32, "22" * 32
SENDER, RECEIVER = public_key(SENDER_SEED), public_key(RECEIVER_SEED)
BODY_BYTES = 200
ACCEPT, BATCH = "/broker/v1/accept", "/broker/v1/accept/batch"
_number = re.compile(rb'"client_message_id":"[0-9a-f]+-(\d+)"')
_message = re.compile(rb'"message_id":"(bmsg_[0-9A-Z]+)"')


def item(run: str, number: int, kind: str) -> dict[str, Any]:
    body = f"{run} {number} ".ljust(BODY_BYTES, "x")
    ref = TOPIC if kind == "topic" else RECEIVER
    return {
        "mesh": MESH,
        "client_message_id": f"{run}-{number}",
        "request_fingerprint": fingerprint(kind, ref, body.encode()).hex(),  # type: ignore[arg-type]
        "envelope_version": 1,
        "destination_kind": kind,
        "destination_ref": ref,
        "priority": "next",
        "body": body,
    }


def signed(target: Target, path: str, content: Any) -> bytes:
    """A whole request of the sender, ready to be sent within the next minutes."""
    body = json.dumps(content, separators=(",", ":")).encode()
    stamp, nonce = str(time.time_ns() // 1_000_000), random_id()
    broker = broker_id(target)
    text = request_text("POST", broker, path.encode(), "", stamp, nonce, body)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        f"X-Agentlip-Member: {SENDER}",
        f"X-Agentlip-Broker: {broker}",
        f"X-Agentlip-Timestamp: {stamp}",
        f"X-Agentlip-Nonce: {nonce}",
        f"X-Agentlip-Signature: {sign(SENDER_SEED, text)}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@cache
def broker_id(target: Target) -> str:
    http = Http(target)
    id_: str = http.call("GET", "/broker/v1/status")["broker_id"]
    http.close()
    return id_


def singles(target: Target, run: str, count: int, kind: str) -> list[bytes]:
    return [signed(target, ACCEPT, item(run, number, kind)) for number in range(count)]


def batches(target: Target, run: str, count: int, size: int, kind: str) -> list[bytes]:
    return [
        signed(
            target,
            BATCH,
            {
                "items": [
                    item(run, number, kind) for number in range(start, min(start + size, count))
                ]
            },
        )
        for start in range(0, count, size)
    ]


def furnish(target: Target) -> None:
    """The mesh, its two members, the topic; made once for an appliance."""
    root = f"/broker/v1/meshes/{MESH}"
    http = Http(target)
    for path, content in (
        ("/broker/v1/meshes", {"slug": MESH}),
        (f"{root}/members", {"pubkey": SENDER, "name": "sender"}),
        (f"{root}/members", {"pubkey": RECEIVER, "name": "receiver"}),
        (f"{root}/topics", {"name": TOPIC}),
    ):
        status, body = http.ask(encode(target, "POST", path, content))
        if status not in (200, 201, 409):
            raise RowFailed(f"status {status}: {body[:200]!r}")
    http.call("PUT", f"{root}/topics/{TOPIC}/subscribers/{RECEIVER}")
    http.close()


class Receiver(WebSocket):
    """A link of the receiver: notes what comes, and acks it in one frame."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "/broker/v1/link")
        self.seen: list[int] = []
        self.times: list[float] = []
        hello = {"type": "hello", "mesh": MESH, "member": RECEIVER}
        self.say(json.dumps(hello).encode())
        answer = json.loads(self._expect(b'"type"'))
        if answer["type"] == "challenge":  # no token that makes the signature needless
            nonce = answer["nonce"]
            text = hello_text(answer["broker_id"], MESH, RECEIVER, nonce)
            signed = {**hello, "nonce": nonce, "signature": sign(RECEIVER_SEED, text)}
            self.say(json.dumps(signed).encode())
            self._expect(b"hello_ack")
        self.say(b'{"type":"negotiate","require":["client_message_id_dedupe"]}')
        self._expect(b"negotiated")

    def _expect(self, kind: bytes) -> bytes:
        while not (frames := self.receive()):
            pass
        if kind not in frames[0]:
            raise RowFailed(f"expected {kind!r}, got {frames[0][:200]!r}")
        return bytes(frames[0])

    def turn(self) -> int:
        joined = b"".join(self.receive())
        numbers = _number.findall(joined)
        if not numbers:
            return 0
        self.seen += map(int, numbers)
        self.times += [NOW()] * len(numbers)
        acks = b'","'.join(_message.findall(joined))
        self.say(b'{"type":"client_ack","message_ids":["%b"]}' % acks)
        return len(numbers)

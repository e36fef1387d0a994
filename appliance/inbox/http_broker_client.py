"""A broker elsewhere: signed HTTP requests of a member, each limited in time and size."""

import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from appliance.inbox import wire
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.clock import Clock
from appliance.kernel.http_client import HttpClient, HttpLimits, Unreachable
from appliance.mesh.request_signing import RequestSigner
from appliance.mesh.signing import Signer, rotation_text
from appliance.sdk.http import json_object

MESHES = "/broker/v1/meshes"
TEXT_MAX = 255  # characters of a name or key in a row
NOT_FOUND = 404
ASK_SECONDS = 15.0  # timeout of a request to a broker
ANSWER_BYTES_MAX = 4 * 1024 * 1024  # size of a broker's reply


class HttpBrokerClient:
    """The BrokerClient of one mesh. `send_frame` sends a frame if the broker is connected."""

    def __init__(
        self,
        endpoint: BrokerEndpoint,
        signer: Signer,
        clock: Clock,
        send_frame: Callable[[dict[str, Any]], None],
    ) -> None:
        limits = HttpLimits(ASK_SECONDS, ASK_SECONDS, ANSWER_BYTES_MAX)
        tls = (
            None
            if endpoint.ca_file is None
            else ssl.create_default_context(cafile=endpoint.ca_file)
        )
        self._http = HttpClient(endpoint.url, limits, "the mesh's broker", tls)
        self._base = f"{MESHES}/{quote(endpoint.mesh, safe='')}"
        self._mesh = endpoint.mesh
        self._signer = signer
        self._signing = RequestSigner(clock, endpoint.broker_id)
        self._send_frame = send_frame

    def subscribe(self, topic: str) -> bool:
        return self._request("PUT", self._subscription(topic)).get("changed") is True

    def unsubscribe(self, topic: str) -> bool:
        try:
            return self._request("DELETE", self._subscription(topic)).get("changed") is True
        except wire.BrokerRefused as refusal:
            if refusal.details.get("status") != NOT_FOUND:
                raise
            return False  # a topic that does not exist has no subscribers

    def topics(self, after: str, limit: int) -> tuple[list[wire.InboxTopic], str]:
        rows, following = self._page("topics", "places", after, limit)
        own = self._signer.public_hex
        return [
            wire.InboxTopic(_text(row, "name"), own in _list(row, "subscribers")) for row in rows
        ], following

    def peers(self, after: str, limit: int) -> tuple[list[wire.Peer], str]:
        rows, following = self._page("members", "members", after, limit)
        return [self._to_peer(row) for row in rows], following

    def set_status(self, status: str) -> None:
        self._send_frame({"type": "status", "status": status})

    def rename(self, name: str) -> None:
        path = f"{self._base}/members/{self._signer.public_hex}"
        self._request("PATCH", path, {"name": name})

    def rotate(self, new: Signer) -> None:
        """Have the broker take the key of `new` for ours; signed with the one in force.

        Asked again after an answer was lost, the old key is unknown and the new one a member.
        """
        old = self._signer.public_hex
        proof = new.sign(rotation_text(self._mesh, old, new.public_hex)).hex()
        self._request(
            "POST", f"{self._base}/members/{old}/rotate",
            {"pubkey": new.public_hex, "proof": proof},
        )  # fmt: skip

    def accepts_key(self, signer: Signer) -> bool:
        """Whether the broker accepts this key as a member's."""
        try:
            self._request("GET", self._base, signer=signer)
        except (wire.BrokerRefused, wire.BrokerNotReached):
            return False
        return True

    def _subscription(self, topic: str) -> str:
        return f"{self._base}/topics/{quote(topic, safe='')}/subscribers/{self._signer.public_hex}"

    def _page(
        self, path: str, name: str, after: str, limit: int
    ) -> tuple[list[dict[str, Any]], str]:
        """One page of a list, which brokers limit in bytes too, and the cursor after it."""
        query = urlencode({"after": after, "limit": limit} if after else {"limit": limit})
        answer = self._request("GET", f"{self._base}/{path}", query=query)
        rows = [row for row in _list(answer, name)[:limit] if isinstance(row, dict)]
        following = _text(answer, "next")
        ends = answer.get("has_more") is not True or not rows or following == after
        return rows, "" if ends else following

    def _to_peer(self, row: dict[str, Any]) -> wire.Peer:
        key = _text(row, "pubkey")
        return wire.Peer(
            key, _text(row, "name"), _text(row, "state"), bool(row.get("connected")),
            key == self._signer.public_hex,
        )  # fmt: skip

    def _request(
        self,
        method: str,
        path: str,
        content: Any = None,
        signer: Signer | None = None,
        query: str = "",
    ) -> dict[str, Any]:
        """The body of a successful reply. Repeats the request if the broker's id was learned."""
        body = b"" if content is None else msgspec.json.encode(content)
        signer = signer or self._signer
        status, reply = self._exchange(method, path, body, signer, query)
        if self._signing.learn(status, reply):
            status, reply = self._exchange(method, path, body, signer, query)
        if 200 <= status < 300:
            return reply
        if status in (408, 425, 429) or status >= 500:
            raise wire.BrokerNotReached(
                f"the broker returned status {status}", details={"mesh": self._mesh}
            )
        error = reply.get("error")
        raise wire.BrokerRefused(
            f"the broker refused: {error}" if isinstance(error, str) else None,
            details={"mesh": self._mesh, "status": status, "code": reply.get("code")},
        )

    def _exchange(
        self, method: str, path: str, body: bytes, signer: Signer, query: str
    ) -> tuple[int, dict[str, Any]]:
        # Requests over kept connections may be repeated, and a rotation can't be.
        headers = {"Accept": "application/json", "Connection": "close"}
        if body:
            headers["Content-Type"] = "application/json"
        headers |= self._signing.headers(signer, method, path, query, body)
        target = f"{self._http.prefix}{path}"
        if query:
            target += f"?{query}"
        try:
            reply = self._http.request(method, target, lambda: headers, body)
        except Unreachable as error:
            raise wire.BrokerNotReached(str(error), details={"mesh": self._mesh}) from None
        return reply.status, json_object(reply.body)


def _text(row: dict[str, Any], name: str) -> str:
    return str(row.get(name))[:TEXT_MAX]


def _list(row: dict[str, Any], name: str) -> list[Any]:
    value = row.get(name)
    return value if isinstance(value, list) else []

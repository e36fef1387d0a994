"""Requests a remote broker over signed HTTP, with limited time and size."""

import ssl
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from appliance.inbox import wire
from appliance.kernel.clock import Clock
from appliance.kernel.http_limits import HttpLimits
from appliance.kernel.unreachable import Unreachable
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.request_signing import RequestSigner
from appliance.mesh.signing import Signer
from appliance.sdk.http import json_object

MESHES = "/broker/v1/meshes"
ASK_SECONDS = 15.0  # timeout for a request to a broker
ANSWER_BYTES_MAX = 4 * 1024 * 1024  # a broker reply's size

Page = TypeVar("Page", bound=wire.BrokerPage)


class HttpBrokerClient:
    """One mesh's BrokerClient."""

    def __init__(self, endpoint: BrokerEndpoint, signer: Signer, clock: Clock) -> None:
        from appliance.kernel.http_client import HttpClient

        limits = HttpLimits(ASK_SECONDS, ASK_SECONDS, ANSWER_BYTES_MAX)
        ca_file = endpoint.ca_file
        tls = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._http = HttpClient(endpoint.url, limits, "the mesh's broker", tls)
        self._base = f"{MESHES}/{quote(endpoint.mesh, safe='')}"
        self._mesh = endpoint.mesh
        self._signer = signer
        self._signing = RequestSigner(clock, endpoint.broker_id)

    def subscribe(self, topic: str, wanted: bool) -> bool:
        own = self._signer.public_hex
        path = f"{self._base}/topics/{quote(topic, safe='')}/subscribers/{own}"
        return self._request("PUT" if wanted else "DELETE", path).get("changed") is True

    def topics(self, after: str, limit: int) -> wire.BrokerTopics:
        return self._page("topics", after, limit, wire.BrokerTopics)

    def members(self, after: str, limit: int) -> wire.BrokerMembers:
        return self._page("members", after, limit, wire.BrokerMembers)

    def rename(self, name: str) -> None:
        path = f"{self._base}/members/{self._signer.public_hex}"
        self._request("PATCH", path, {"name": name})

    def rotate(self, pubkey: str, proof: str) -> None:
        """Replace the key with a request that the current key signs. If a reply was lost, the
        old key is unknown the second time, and the new one is a member."""
        path = f"{self._base}/members/{self._signer.public_hex}/rotate"
        self._request("POST", path, {"pubkey": pubkey, "proof": proof})

    def accepts_key(self, signer: Signer) -> bool:
        """Return whether the broker accepts this key as a member's."""
        try:
            self._request("GET", self._base, signer=signer)
        except (wire.BrokerRefused, wire.BrokerNotReached):
            return False
        return True

    def _page(self, name: str, after: str, limit: int, kind: type[Page]) -> Page:
        query = urlencode({"after": after, "limit": limit} if after else {"limit": limit})
        reply = self._request("GET", f"{self._base}/{name}?{query}")
        try:
            return msgspec.convert(reply, kind)
        except msgspec.ValidationError:
            raise self._not_reached(f"the broker's reply is not a list of {name}") from None

    def _request(
        self, method: str, target: str, content: Any = None, signer: Signer | None = None
    ) -> dict[str, Any]:
        """Return a successful reply's body. Repeats the request once the broker's id was
        learned."""
        body = b"" if content is None else msgspec.json.encode(content)
        signer = signer or self._signer
        status, reply = self._exchange(method, target, body, signer)
        if self._signing.learn(status, reply):
            status, reply = self._exchange(method, target, body, signer)
        if 200 <= status < 300:
            return reply
        if status in (408, 425, 429) or status >= 500:
            raise self._not_reached(f"the broker returned status {status}")
        error = reply.get("error")
        raise wire.BrokerRefused(
            f"the broker refused: {error}" if isinstance(error, str) else None,
            details={"mesh": self._mesh, "status": status, "code": reply.get("code")},
        )

    def _exchange(
        self, method: str, target: str, body: bytes, signer: Signer
    ) -> tuple[int, dict[str, Any]]:
        # Requests over kept connections may be repeated, and a rotation can't be.
        headers = {"Accept": "application/json", "Connection": "close"}
        if body:
            headers["Content-Type"] = "application/json"
        path, _, query = target.partition("?")
        headers |= self._signing.headers(signer, method, path, query, body)
        try:
            reply = self._http.request(method, self._http.prefix + target, lambda: headers, body)
        except Unreachable as error:
            raise self._not_reached(str(error)) from None
        return reply.status, json_object(reply.body)

    def _not_reached(self, reason: str) -> wire.BrokerNotReached:
        return wire.BrokerNotReached(reason, details={"mesh": self._mesh})

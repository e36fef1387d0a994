"""A broker elsewhere as a member asks it: signed requests, one at a time, each with limits."""

import http.client
import ssl
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from appliance.inbox import lists, wire
from appliance.inbox.settings import BrokerPlace, InboxSettings
from appliance.kernel.clock import Clock
from appliance.mesh.request_signing import RequestSigner
from appliance.mesh.signing import Signer, rotation_text

T = TypeVar("T")

MESHES = "/broker/v1/meshes"
ROWS_MAX = 10_000  # of one page, whatever the broker says
TEXT_MAX = 255  # of a name or a key in such a row
_ABSENT = 404


class HttpBrokerClient:
    """The broker_client of one mesh. `say` hands a frame to the link, if that is up."""

    def __init__(
        self,
        place: BrokerPlace,
        signer: Signer,
        settings: InboxSettings,
        clock: Clock,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        parts = urlsplit(place.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=place.ca_file)
        self._base = f"{MESHES}/{quote(place.mesh, safe='')}"
        self._mesh = place.mesh
        self._signer = signer
        self._settings = settings
        self._signing = RequestSigner(clock, place.broker_id)
        self._say = say

    def subscribe(self, topic: str) -> None:
        self._ask("PUT", self._subscription(topic))

    def unsubscribe(self, topic: str) -> None:
        try:
            self._ask("DELETE", self._subscription(topic))
        except wire.BrokerRefused as refusal:
            if refusal.details.get("status") != _ABSENT:
                raise  # of a topic that is gone nobody is a subscriber

    def topics(self, after: str, limit: int, bytes_max: int) -> tuple[list[tuple[str, bool]], str]:
        own = self._signer.public_hex

        def made(one: dict[str, Any]) -> tuple[str, bool]:
            return _text(one, "name"), own in one.get("subscribers", ())

        ask = self._asking("topics", "places", made)
        return lists.gather(ask, after, limit, bytes_max, lists.topic_bytes)

    def peers(self, after: str, limit: int, bytes_max: int) -> tuple[list[wire.Peer], str]:
        own = self._signer.public_hex

        def made(one: dict[str, Any]) -> wire.Peer:
            key = _text(one, "pubkey")
            connected = bool(one.get("connected"))
            return wire.Peer(key, _text(one, "name"), _text(one, "state"), connected, key == own)

        ask = self._asking("members", "members", made)
        return lists.gather(ask, after, limit, bytes_max, lists.peer_bytes)

    def say_status(self, status: str, visible: bool, summary: str) -> None:
        del visible, summary  # brokers know the status only
        self._say({"type": "status", "status": status})

    def rename(self, name: str) -> None:
        path = f"{self._base}/members/{self._signer.public_hex}"
        self._ask("PATCH", path, {"name": name})

    def rotate(self, new: Signer) -> None:
        """Have the broker take the key of `new` for ours; signed with the one in force.

        Asked again after an answer was lost, the old key is unknown and the new one a member.
        """
        old = self._signer.public_hex
        proof = new.sign(rotation_text(self._mesh, old, new.public_hex)).hex()
        self._ask(
            "POST", f"{self._base}/members/{old}/rotate",
            {"pubkey": new.public_hex, "proof": proof},
        )  # fmt: skip

    def knows(self, other: Signer) -> bool:
        """Whether the broker takes `other` for a member."""
        try:
            self._ask("GET", self._base, signer=other)
        except (wire.BrokerRefused, wire.NoBroker):
            return False
        return True

    def _subscription(self, topic: str) -> str:
        return f"{self._base}/topics/{quote(topic, safe='')}/subscribers/{self._signer.public_hex}"

    def _asking(self, path: str, name: str, made: Callable[[dict[str, Any]], T]) -> lists.Ask[T]:
        """Asks for one page of a list: brokers limit a page in bytes too."""

        def ask(after: str, limit: int) -> tuple[list[T], str]:
            asked = {"after": after, "limit": limit if limit < ROWS_MAX else ""}
            query = urlencode({key: value for key, value in asked.items() if value})
            answer = self._ask("GET", f"{self._base}/{path}", query=query)
            rows = [made(one) for one in _list_of(answer, name)[:ROWS_MAX]]
            return rows, _text(answer, "next") if answer.get("has_more") is True else ""

        return ask

    def _ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        signer: Signer | None = None,
        query: str = "",
    ) -> Any:
        """The answer of a success. A request is made again once the broker's id is known."""
        body = b"" if content is None else msgspec.json.encode(content)
        status, told = self._exchange(method, path, body, signer or self._signer, query)
        if self._signing.learn(status, told):
            status, told = self._exchange(method, path, body, signer or self._signer, query)
        if 200 <= status < 300:
            return told
        if status in (408, 425, 429) or status >= 500:
            raise wire.NoBroker(
                f"the broker returned status {status}", details={"mesh": self._mesh}
            )
        said = told.get("error")
        raise wire.BrokerRefused(
            f"the broker refused: {said}" if isinstance(said, str) else None,
            details={"mesh": self._mesh, "status": status, "code": told.get("code")},
        )

    def _exchange(
        self, method: str, path: str, body: bytes, signer: Signer, query: str
    ) -> tuple[int, dict[str, Any]]:
        headers = self._signing.headers(signer, method, path, query, body)
        headers["Accept"] = "application/json"
        if body:
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            target = f"{self._prefix}{path}?{query}" if query else self._prefix + path
            connection.request(method, target, body or None, headers)
            reply = connection.getresponse()
            text = reply.read(self._settings.answer_bytes_max + 1)
        except (OSError, http.client.HTTPException) as error:
            raise wire.NoBroker(
                f"the broker of the mesh can't be asked: {type(error).__name__}",
                details={"mesh": self._mesh},
            ) from None
        finally:
            connection.close()
        return reply.status, _decoded(text) if len(text) <= self._settings.answer_bytes_max else {}

    def _connection(self) -> http.client.HTTPConnection:
        seconds = self._settings.ask_seconds
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=seconds, context=self._tls
        )


def _decoded(text: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _text(row: dict[str, Any], name: str) -> str:
    return str(row.get(name))[:TEXT_MAX]


def _list_of(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = answer.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

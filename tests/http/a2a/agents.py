"""An agent that works from its inbox, and the official client as its caller."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageConfiguration, SendMessageRequest
from a2a.utils.signing import create_signature_verifier
from jwt import PyJWK

from tests.support.servedhub import Client, ServedHub

SETTINGS = """
[[a2a.agents]]
name = "builder"
description = "Builds the project: größer, schneller"
skills = [{ id = "build", description = "Build a commit", examples = ["build main"] }]

[[a2a.agents]]
name = "tester"
description = "Runs the tests"
skills = [{ id = "test", description = "Run the tests" }]

[[a2a.agents]]
name = "team"
description = "Several workers"
skills = [{ id = "work", description = "Do some work" }]
stream = "work/a2a"
"""


def made_token(hub: ServedHub, name: str, scopes: list[str]) -> str:
    body = {"name": name, "senders": [name], "scopes": scopes}
    return str(hub.made(hub.http.post("/api/v1/tokens", body))["secret"])


class A2aHub(NamedTuple):
    served: ServedHub
    caller: str
    builder: str
    stranger: str

    @property
    def url(self) -> str:
        return self.served.url

    def agent(self) -> "Agent":
        return Agent(self.served.connect(self.builder))

    def rpc(self, method: str, params: Any, token: str = "", agent: str = "builder") -> Any:
        """A raw request; the reply's body."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.post(json.dumps(body).encode(), token, agent).body

    def post(self, raw: bytes, token: str = "", agent: str = "builder", version: str = "1.0"):
        client = self.served.connect(token or self.caller)
        try:
            return client.post(f"/a2a/{agent}", raw=raw, headers={"A2A-Version": version})
        finally:
            client.close()


class Agent:
    """The agent `builder`: reads its inbox, replies, acknowledges."""

    def __init__(self, http: Client) -> None:
        self._http = http

    def next_entry(self, wanted: str) -> Any:
        """Wait for the open entry with this task, or with this text. Others are acknowledged."""
        while True:
            page = self._http.get("/api/v1/inbox?wait=30").body
            assert page["entries"], "no entry came"
            for entry in page["entries"]:
                if wanted in (entry["message"]["topic_id"], entry["message"]["content_raw"]):
                    return entry
            self.acknowledge(*[entry["id"] for entry in page["entries"]])

    def reply(self, task: str, text: str) -> Any:
        command = {"topic_id": task, "sender": "builder", "content_raw": text}
        return ServedHub.made(self._http.post("/api/v1/messages", command))

    def acknowledge(self, *ids: int) -> None:
        answer = self._http.post("/api/v1/inbox/acknowledge", {"ids": list(ids)})
        assert answer.status == 200, answer

    def decline(self, entry: int, reason: str) -> None:
        answer = self._http.post("/api/v1/inbox/decline", {"id": entry, "reason": reason})
        assert answer.status == 200, answer

    def ask(self, task: str, text: str, *who: str) -> Any:
        command = {"text": text, "sender": "builder", "topic_id": task, "may_answer": list(who)}
        return ServedHub.made(self._http.post("/api/v1/asks", command))["ask"]

    def answer_to(self, ask_id: str) -> Any:
        return self._http.get(f"/api/v1/asks/{ask_id}?wait=30").body["ask"]


def message(text: str, number: str, **more: Any) -> SendMessageRequest:
    """A message in the official client's types."""
    body = Message(message_id=number, role=Role.ROLE_USER, parts=[Part(text=text)], **more)
    return SendMessageRequest(message=body)


def at_once(request: SendMessageRequest) -> SendMessageRequest:
    request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
    return request


@asynccontextmanager
async def connected(hub: A2aHub, agent: str = "builder", **config: Any) -> AsyncIterator[Any]:
    """Resolve the card, verify its signature, and yield the official client."""
    headers = {"Authorization": f"Bearer {hub.caller}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        keys = (await http.get(f"{hub.url}/.well-known/jwks.json")).json()["keys"]

        def key_of(kid: str | None, jku: str | None) -> PyJWK:
            assert jku == f"{hub.url}/.well-known/jwks.json"
            (key,) = [key for key in keys if key["kid"] == kid]
            return PyJWK(key)

        resolver = A2ACardResolver(http, f"{hub.url}/a2a/{agent}")
        verify = create_signature_verifier(key_of, ["EdDSA"])
        card = await resolver.get_agent_card(signature_verifier=verify)
        yield ClientFactory(ClientConfig(httpx_client=http, **config)).create(card)


def raw_part() -> dict[str, str]:
    return {"raw": base64.b64encode(b"bytes").decode()}

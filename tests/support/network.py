"""Agents of the network in one process, with a relay and a clock that moves only on request.

Their requests reach the relay's app, and their envelopes each other's endpoint, without sockets.
"""

import io
import json
import threading
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from appliance.network.keys import AgentKey
from appliance.sdk.network import relay_client
from appliance.sdk.network.agent import NetworkAgent, NetworkEvent
from appliance.sdk.network.endpoint import response
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from tests.support.clock import FakeClock
from tests.support.relay import RelayFixture, key

MALLORY = key("mallory")


class Reply(io.BytesIO):
    def __init__(self, content: bytes, headers: dict[str, str]) -> None:
        super().__init__(content)
        self.headers = headers


class AgentClock:
    """The relay's clock, one millisecond later at each reading, so that no signature repeats."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        self._clock.ms += 1
        return self._clock.ms

    def monotonic(self) -> float:
        return self._clock.seconds

    uptime = monotonic


class NetworkFixture:
    """`offline`: agents whose endpoint can't be reached. `sent`: every envelope on the wire.
    `direct`: the direct addresses that were tried, and `unreachable`: those that don't respond.
    `tamper` changes what the relay responds to a path. `skew_seconds`: how far the relay's clock
    is ahead, in its responses."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
        """`options`: the relay's."""
        self.folder = folder
        self.relay = RelayFixture(folder / "relay", *options)
        self.clock = AgentClock(self.relay.clock)
        self.agents: dict[str, NetworkAgent] = {}
        self.events: list[tuple[str, NetworkEvent]] = []
        self.handled: list[tuple[str, Any]] = []
        self.offline: set[str] = set()
        self.sent: list[bytes] = []
        self.direct: list[str] = []
        self.unreachable: set[str] = set()
        self.tamper: dict[str, Any] = {}
        self.relay_is_down = False
        self.skew_seconds = 0.0
        self._lock = threading.Lock()
        monkeypatch.setattr(relay_client, "urlopen", self._urlopen)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()
        self.relay.close()

    def agent(self, name: str, **options: Any) -> NetworkAgent:
        """An active agent, whose first heartbeat was sent."""
        agent = self.open(name, **options)
        self.relay.add(name)
        agent.poll()
        return agent

    def open(
        self, name: str, *, handle: bool = True, own: AgentKey | None = None, **options: Any
    ) -> NetworkAgent:
        """An agent with its folder, which may exist. `own`: a new folder's key."""
        path = self.folder / name
        if not path.exists():
            endpoint = f"https://{name}.example.org/network/inbox"
            AgentFolder.create(
                path, AgentConfig(name, "https://relay.example", endpoint), own or key(name)
            )
        if handle:
            options.setdefault("on_message", lambda message: self.handled.append((name, message)))
        self.agents[name] = NetworkAgent(
            path,
            on_event=lambda event: self.events.append((name, event)),
            post=self.post,
            clock=self.clock,
            **options,
        )
        return self.agents[name]

    def connect(self, name: str, other: str) -> None:
        self.relay.connect(name, other)
        for agent in (name, other):
            self.agents[agent].poll()

    def post(self, url: str, body: bytes, direct: str = "") -> tuple[int, object]:
        name = (urlsplit(url).hostname or "").partition(".")[0]
        self.direct += [direct] if direct else []
        if name in self.offline or direct in self.unreachable:
            raise ConnectionRefusedError
        self.sent.append(body)
        status, _, headers = response(self.agents[name], "POST", body)
        return status, dict(headers).get("Retry-After")

    def wait(self, seconds: float, *names: str) -> None:
        """Let time pass, with the heartbeats of these agents, and a round of every agent."""
        self.relay.clock.pass_seconds(seconds)
        for name in names:
            self.agents[name].poll()
        for agent in list(self.agents.values()):
            agent.run_once()

    def kinds(self, name: str) -> list[str]:
        """The events of an agent, without those about keys that are pinned first."""
        return [e.kind for who, e in self.events if who == name and e.kind != "key-pinned"]

    def texts(self, name: str) -> list[Any]:
        """What the handler of an agent got."""
        return [message.payload.get("text") for who, message in self.handled if who == name]

    def _urlopen(self, request: Any, **_: Any) -> io.BytesIO:
        if self.relay_is_down:
            raise ConnectionRefusedError
        path = request.full_url.removeprefix("https://relay.example")
        headers = {name.title(): value for name, value in request.header_items()}
        with self._lock:
            result = self.relay.send(request.get_method(), path, request.data or b"", headers)
        content = result.content
        if path in self.tamper:
            content = self.tamper[path](content)
        if result.status_code >= 400:
            raise HTTPError(path, result.status_code, "", None, io.BytesIO(content))  # type: ignore[arg-type]
        date = formatdate(self.relay.clock.now_ms() / 1000 + self.skew_seconds, usegmt=True)
        return Reply(content, {"Date": date})


def show_other_key(network: NetworkFixture, name: str, other: AgentKey = MALLORY) -> None:
    """The relay shows another key for this agent."""

    def changed(content: bytes) -> bytes:
        rows = json.loads(content)
        for row in rows:
            if row["agent"] == name:
                row["publicKey"] = str(other.public)
        return json.dumps(rows).encode()

    network.tamper["/contacts"] = changed

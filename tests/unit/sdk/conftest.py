"""Both clients as one thing to test."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from appliance.sdk import stream_follower
from appliance.sdk.aio import AsyncAgentlipClient
from appliance.sdk.client import AgentlipClient
from appliance.sdk.models import Envelope

EVENT_SECONDS_MAX = 30


class Flavour:
    """`take(count, each)` gives the first events of a client; `each` sees one after another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client: Any = None

    def take(
        self,
        count: int,
        each: Callable[[Any, Envelope], object] = lambda *_: None,
        handlers: dict[str, Callable[[Any], object]] | None = None,
        **arguments: Any,
    ) -> list[Envelope]:
        run = self._take_sync if self.name == "sync" else self._take_async
        taken: list[Envelope] = run(count, each, handlers or {}, arguments)
        return taken

    def _take_sync(self, count: int, each: Any, handlers: Any, arguments: Any) -> Any:
        found: list[Envelope] = []
        with AgentlipClient(**arguments) as self.client:
            for name, handler in handlers.items():
                self.client.on(name, handler)
            for event in self.client.events():
                found.append(event)
                each(self.client, event)
                if len(found) == count:
                    break
        return found

    def _take_async(self, count: int, each: Any, handlers: Any, arguments: Any) -> Any:
        async def run() -> list[Envelope]:
            found: list[Envelope] = []
            async with AsyncAgentlipClient(**arguments) as self.client:
                for name, handler in handlers.items():
                    self.client.on(name, handler)
                async for event in self.client.events():
                    found.append(event)
                    each(self.client, event)
                    if len(found) == count:
                        break
            return found

        return asyncio.run(asyncio.wait_for(run(), EVENT_SECONDS_MAX))

    def call(self, verb: str, *values: Any, arguments: dict[str, Any], **more: Any) -> Any:
        if self.name == "sync":
            with AgentlipClient(**arguments) as client:
                return getattr(client, verb)(*values, **more)

        async def run() -> Any:
            async with AsyncAgentlipClient(**arguments) as client:
                return await getattr(client, verb)(*values, **more)

        return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return Flavour(request.param)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnecting without the long breaths."""
    for name in ("FIRST_WAIT_SECONDS", "LONGEST_WAIT_SECONDS", "GOING_AWAY_WAIT_SECONDS"):
        monkeypatch.setattr(stream_follower, name, 0.02)

"""Both clients as one thing to test."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from appliance.kernel.retry import RetrySettings
from appliance.sdk import stream_follower
from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
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
        events: list[Envelope] = []
        with Client(**arguments) as self.client:
            for name, handler in handlers.items():
                self.client.on(name, handler)
            for event in self.client.events():
                events.append(event)
                each(self.client, event)
                if len(events) == count:
                    break
        return events

    def _take_async(self, count: int, each: Any, handlers: Any, arguments: Any) -> Any:
        async def run() -> list[Envelope]:
            events: list[Envelope] = []
            async with AsyncClient(**arguments) as self.client:
                for name, handler in handlers.items():
                    self.client.on(name, handler)
                async for event in self.client.events():
                    events.append(event)
                    each(self.client, event)
                    if len(events) == count:
                        break
            return events

        return asyncio.run(asyncio.wait_for(run(), EVENT_SECONDS_MAX))

    def call(self, verb: str, *values: Any, arguments: dict[str, Any], **more: Any) -> Any:
        if self.name == "sync":
            with Client(**arguments) as client:
                return getattr(client, verb)(*values, **more)

        async def run() -> Any:
            async with AsyncClient(**arguments) as client:
                return await getattr(client, verb)(*values, **more)

        return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return Flavour(request.param)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnecting without the long breaths."""
    monkeypatch.setattr(stream_follower, "RECONNECT", RetrySettings(0.02, 0.02))
    monkeypatch.setattr(stream_follower, "GOING_AWAY_WAIT_SECONDS", 0.02)

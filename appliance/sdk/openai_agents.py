"""Keeps a conversation of the OpenAI Agents SDK in the hub: `pip install agentlip[openai-agents]`.

A session is a topic, and each item is a message: backups, erasure, scopes and the UI apply to it.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from agents import TResponseInputItem
from agents.memory import SessionABC, SessionSettings

from appliance.sdk.client import Client
from appliance.sdk.topic_log import TopicLog

CHANNEL = "conversations"
T = TypeVar("T")


class HubSession(SessionABC):
    """A session. `hub`: its token needs `hub:read` and `hub:post`."""

    def __init__(
        self,
        session_id: str,
        hub: Client,
        channel: str = CHANNEL,
        sender: str = CHANNEL,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._log = TopicLog(hub, channel, session_id, sender)
        self._lock = asyncio.Lock()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest `limit` items, or all, oldest first."""
        settings = self.session_settings
        count = settings.limit if limit is None and settings is not None else limit
        return await self._run(lambda: self._read(count))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        def add() -> None:
            for item in items:
                self._log.append({"item": item})

        await self._run(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Delete the newest item and return it. Two that pop at once get different items."""
        return await self._run(self._pop)

    async def clear_session(self) -> None:
        await self._run(self._log.clear)

    async def _run(self, function: Callable[[], T]) -> T:
        async with self._lock:
            return await asyncio.to_thread(function)

    def _read(self, limit: int | None) -> list[TResponseInputItem]:
        newest = islice(self._log.newest(), limit)
        return [record["item"] for _, record in newest][::-1]

    def _pop(self) -> TResponseInputItem | None:
        for message_id, record in self._log.newest():
            if self._log.delete(message_id):
                item: TResponseInputItem = record["item"]
                return item
        return None

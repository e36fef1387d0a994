"""The reads of `Reader` for who has only a hub's address: asked of the hub, answered alike."""

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from appliance.sdk.catalogue import Catalogue
from appliance.sdk.http import HubClient
from appliance.sdk.reader import Row, TopicNotFound


class RemoteReader:
    """Use as a context manager, as the other one. What a page may hold at most, the hub says."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self._catalogue = Catalogue(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def channels(self, limit: int) -> list[Row]:
        return self._rows("/api/v1/channels", "channels", limit=limit)

    def topics(self, channel: str, limit: int) -> list[Row]:
        """Topics of a channel (name or id), the most recently used first."""
        channel_id = self._catalogue.channel_id(channel)
        return self._rows(f"/api/v1/channels/{channel_id}/topics", "topics", limit=limit)

    def topic_titled(self, channel: str, title: str) -> Row:
        channel_id = self._catalogue.channel_id(channel)
        try:
            return {"id": self._catalogue.topic_id(channel, title), "channel_id": channel_id}
        except TopicNotFound as error:
            error.hint = f"agentlip topic list --channel {channel}"
            raise

    def messages(
        self,
        topic_id: str,
        limit: int = 50,
        before_id: str | None = None,
        after_id: str | None = None,
    ) -> list[Row]:
        return self._rows(
            "/api/v1/messages", "messages",
            topic_id=topic_id, limit=limit, before_id=before_id, after_id=after_id,
        )  # fmt: skip

    def attachments(
        self, topic_id: str, kind: str | None = None, limit: int = 50, before_id: str | None = None
    ) -> list[Row]:
        path = f"/api/v1/topics/{quote(topic_id, safe='')}/attachments"
        return self._rows(path, "attachments", kind=kind, limit=limit, before_id=before_id)

    def search(
        self,
        words: str,
        *,
        channel: str | None = None,
        topic_id: str | None = None,
        sender: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Row:
        channel_id = None if channel is None else self._catalogue.channel_id(channel)
        return self._client.get(
            "/api/v1/search", q=words, channel_id=channel_id, topic_id=topic_id,
            sender=sender, after=after, before=before, limit=limit,
        )  # fmt: skip

    def _rows(self, path: str, name: str, **query: Any) -> list[Row]:
        rows: list[Row] = self._client.get(path, **query)[name]
        return rows

"""Offers `WorkspaceReader`'s reads over HTTP, for callers that have only a hub's address."""

from typing import Any
from urllib.parse import quote

from appliance.sdk.catalogue import channel_id_of, topic_id_in, topic_id_of
from appliance.sdk.closing import Closing
from appliance.sdk.database import Row
from appliance.sdk.http import HubClient
from appliance.sdk.reader import ROWS_MAX


class RemoteReader(Closing):
    """A reader, used as a context manager. The hub limits page sizes."""

    def __init__(self, client: HubClient) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    def channels(self, limit: int) -> list[Row]:
        return self._rows("/api/v1/channels", "channels", limit, "after_name", "name")

    def topics(self, channel: str, limit: int) -> list[Row]:
        """Return a channel's topics (by name or id), the most recently used first."""
        channel_id = channel_id_of(self._client, channel)
        path = f"/api/v1/channels/{channel_id}/topics"
        return self._rows(path, "topics", limit, "before_id")

    def topic_titled(self, channel: str, title: str) -> Row:
        return {"id": topic_id_in(self._client, channel, title)}

    def message(self, message_id: str) -> Row:
        answer = self._client.get(f"/api/v1/messages/{quote(message_id, safe='')}")
        row: Row = answer["message"]
        return row

    def messages(
        self,
        topic_id: str,
        limit: int = 50,
        before_id: str | None = None,
        after_id: str | None = None,
        since: str | None = None,
    ) -> list[Row]:
        cursor = "before_id" if after_id is None and since is None else "after_id"
        return self._rows(
            "/api/v1/messages", "messages", limit, cursor,
            topic_id=topic_id, before_id=before_id, after_id=after_id, since=since,
        )  # fmt: skip

    def attachments(
        self, topic_id: str, kind: str | None = None, limit: int = 50, before_id: str | None = None
    ) -> list[Row]:
        path = f"/api/v1/topics/{quote(topic_id_of(self._client, topic_id), safe='')}/attachments"
        return self._rows(path, "attachments", limit, "before_id", kind=kind, before_id=before_id)

    def search(self, words: str, *, channel: str | None = None, **query: Any) -> Row:
        """Search with `WorkspaceReader.search` conditions."""
        channel_id = None if channel is None else channel_id_of(self._client, channel)
        return self._client.get("/api/v1/search", q=words, channel_id=channel_id, **query)

    def _rows(
        self, path: str, name: str, limit: int, cursor: str, key: str = "id", **query: Any
    ) -> list[Row]:
        """Return `limit` rows, page by page, because the hub also limits a page in bytes."""
        limit = min(limit, ROWS_MAX)
        return self._client.page(path, name, limit, cursor=cursor, key=key, **query)[0]

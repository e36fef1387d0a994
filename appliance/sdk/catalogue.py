"""Finds the ids of channels and topics by name through the hub, and creates missing ones.

When two clients create the same name at once, the second gets a conflict and reads the list
again.
"""

from collections.abc import Callable, Iterator
from functools import partial

from appliance.hub.wire import NoSuchChannel, NoSuchTopic
from appliance.sdk.http import HubClient, Json, Refused

PAGE = 200
PAGES_MAX = 1000


class Catalogue:
    """Caches the ids it has read. Ids never change, so entries never expire."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self._channels: dict[str, str] = {}
        self._topics: dict[str, dict[str, str]] = {}

    def channel_id(self, name_or_id: str, create: bool = False) -> str:
        """The id of a channel given by name or id."""
        if not self._channels:
            self._load_channels()
        if name_or_id not in self._channels:
            if not create:
                raise NoSuchChannel(
                    f"channel not found: {name_or_id}",
                    hint=f"agentlip channel create {name_or_id!r}",
                )
            body = {"name": name_or_id}
            self._make("channel", body, name_or_id, self._channels, self._load_channels)
        return self._channels[name_or_id]

    def topic_id(self, channel: str, title: str, create: bool = False) -> str:
        channel_id = self.channel_id(channel, create)
        load = partial(self._load_topics, channel_id)
        if channel_id not in self._topics:
            load()
        topics = self._topics[channel_id]
        if title not in topics:
            if not create:
                raise NoSuchTopic(
                    f"topic not found: {title}",
                    hint=f"agentlip topic create --channel {channel!r} {title!r}",
                )
            self._make("topic", {"channel_id": channel_id, "title": title}, title, topics, load)
        return topics[title]

    def _load_channels(self) -> None:
        for row in self._rows("/api/v1/channels", "channels", "after_name", "name"):
            self._channels[row["name"]] = self._channels[row["id"]] = row["id"]

    def _load_topics(self, channel_id: str) -> None:
        topics = self._topics.setdefault(channel_id, {})
        for row in self._rows(f"/api/v1/channels/{channel_id}/topics", "topics", "before_id", "id"):
            topics[row["title"]] = row["id"]

    def _rows(self, path: str, name: str, cursor: str, key: str) -> Iterator[Json]:
        """All rows. `cursor` is the parameter that continues after the last one; `key` is its
        column."""
        after: str | None = None
        for _ in range(PAGES_MAX):
            page = self._client.get(path, limit=PAGE, **{cursor: after})[name]
            yield from page
            if not page or page[-1][key] == after:
                break
            after = page[-1][key]

    def _make(
        self, kind: str, body: Json, name: str, ids: dict[str, str], load: Callable[[], None]
    ) -> None:
        try:
            ids[name] = self._client.post(f"/api/v1/{kind}s", body)[kind]["id"]
        except Refused as error:
            load()
            if error.http_status != 409 or name not in ids:
                raise


def topic_id_of(client: HubClient, reference: str) -> str:
    """The id of a topic given by id or CHANNEL/TITLE. Raises NoSuchTopic or NoSuchChannel."""
    channel, slash, title = reference.partition("/")
    return Catalogue(client).topic_id(channel, title) if slash else reference

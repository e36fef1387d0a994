"""Finds the ids of channels and topics by name through the hub, and creates missing ones.

When two clients create the same name at once, the second gets a conflict and reads the list
again.
"""

from appliance.sdk.http import HubClient, Json, Refused
from appliance.sdk.reader import ChannelNotFound, TopicNotFound

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
                raise ChannelNotFound(
                    f"channel not found: {name_or_id}",
                    hint=f"agentlip channel create {name_or_id!r}",
                )
            self._make_channel(name_or_id)
        return self._channels[name_or_id]

    def topic_id(self, channel: str, title: str, create: bool = False) -> str:
        channel_id = self.channel_id(channel, create)
        if channel_id not in self._topics:
            self._load_topics(channel_id)
        if title not in self._topics[channel_id]:
            if not create:
                raise TopicNotFound(
                    f"topic not found: {title}",
                    hint=f"agentlip topic create --channel {channel!r} {title!r}",
                )
            self._make_topic(channel_id, title)
        return self._topics[channel_id][title]

    def _load_channels(self) -> None:
        after: str | None = None
        for _ in range(PAGES_MAX):
            page = self._client.get("/api/v1/channels", limit=PAGE, after_name=after)["channels"]
            for row in page:
                self._channels[row["name"]] = row["id"]
                self._channels[row["id"]] = row["id"]
            if not page or page[-1]["name"] == after:
                break
            after = page[-1]["name"]

    def _make_channel(self, name: str) -> None:
        try:
            made: Json = self._client.post("/api/v1/channels", {"name": name})["channel"]
            self._channels[name] = made["id"]
        except Refused as error:
            self._load_channels()
            if error.http_status != 409 or name not in self._channels:
                raise

    def _load_topics(self, channel_id: str) -> None:
        topics = self._topics.setdefault(channel_id, {})
        before: str | None = None
        for _ in range(PAGES_MAX):
            path = f"/api/v1/channels/{channel_id}/topics"
            page = self._client.get(path, limit=PAGE, before_id=before)["topics"]
            topics.update((row["title"], row["id"]) for row in page)
            if not page or page[-1]["id"] == before:
                break
            before = page[-1]["id"]

    def _make_topic(self, channel_id: str, title: str) -> None:
        body = {"channel_id": channel_id, "title": title}
        try:
            made: Json = self._client.post("/api/v1/topics", body)["topic"]
            self._topics[channel_id][title] = made["id"]
        except Refused as error:
            self._load_topics(channel_id)
            if error.http_status != 409 or title not in self._topics[channel_id]:
                raise


def topic_id_of(client: HubClient, reference: str) -> str:
    """The id of a topic given by id or CHANNEL/TITLE. Raises TopicNotFound or ChannelNotFound."""
    channel, slash, title = reference.partition("/")
    return Catalogue(client).topic_id(channel, title) if slash else reference

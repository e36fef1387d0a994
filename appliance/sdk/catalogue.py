"""Finds the ids of channels and topics by name through the hub."""

from appliance.hub.wire import NoSuchChannel, NoSuchTopic
from appliance.sdk.http import HubClient


class Catalogue:
    """Caches the ids it has read. Ids never change, so entries never expire."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self._channels: dict[str, str] = {}
        self._topics: dict[str, dict[str, str]] = {}

    def channel_id(self, name_or_id: str) -> str:
        """The id of a channel given by name or id."""
        if not self._channels:
            self._load_channels()
        if name_or_id not in self._channels:
            raise NoSuchChannel(
                f"channel not found: {name_or_id}",
                hint=f"agentlip channel create {name_or_id!r}",
            )
        return self._channels[name_or_id]

    def topic_id(self, channel: str, title: str) -> str:
        channel_id = self.channel_id(channel)
        if channel_id not in self._topics:
            self._load_topics(channel_id)
        topics = self._topics[channel_id]
        if title not in topics:
            raise NoSuchTopic(
                f"topic not found: {title}",
                hint=f"agentlip topic create --channel {channel!r} {title!r}",
            )
        return topics[title]

    def _load_channels(self) -> None:
        listed = self._client.rows("/api/v1/channels", "channels", cursor="after_name", key="name")
        for row in listed:
            self._channels[row["name"]] = self._channels[row["id"]] = row["id"]

    def _load_topics(self, channel_id: str) -> None:
        topics = self._topics.setdefault(channel_id, {})
        path = f"/api/v1/channels/{channel_id}/topics"
        for row in self._client.rows(path, "topics", cursor="before_id", key="id"):
            topics[row["title"]] = row["id"]


def topic_id_of(client: HubClient, reference: str) -> str:
    """The id of a topic given by id or CHANNEL/TITLE. Raises NoSuchTopic or NoSuchChannel."""
    channel, slash, title = reference.partition("/")
    return Catalogue(client).topic_id(channel, title) if slash else reference

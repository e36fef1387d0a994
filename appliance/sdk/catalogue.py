"""Finds channel and topic ids by name through the hub."""

from shlex import quote

from appliance.hub.wire import NoSuchChannel, NoSuchTopic
from appliance.sdk.http import HubClient


def channel_id_of(client: HubClient, name_or_id: str) -> str:
    """Return a channel's id, given its name or id. Raises NoSuchChannel."""
    for row in client.rows("/api/v1/channels", "channels", cursor="after_name", key="name"):
        if name_or_id in (row["id"], row["name"]):
            return str(row["id"])
    raise NoSuchChannel(
        f"channel not found: {name_or_id}", hint=f"agentlip channel create {quote(name_or_id)}"
    )


def topic_id_in(client: HubClient, channel: str, title: str) -> str:
    """Return a topic's id, given its channel and title. Raises NoSuchTopic or NoSuchChannel."""
    path = f"/api/v1/channels/{channel_id_of(client, channel)}/topics"
    for row in client.rows(path, "topics", cursor="before_id", key="id"):
        if row["title"] == title:
            return str(row["id"])
    raise NoSuchTopic(
        f"topic not found: {title}",
        hint=f"agentlip topic create --channel {quote(channel)} {quote(title)}",
    )


def topic_id_of(client: HubClient, reference: str) -> str:
    """Return a topic's id, given its id or CHANNEL/TITLE. Raises NoSuchTopic or NoSuchChannel."""
    channel, slash, title = reference.partition("/")
    return topic_id_in(client, channel, title) if slash else reference

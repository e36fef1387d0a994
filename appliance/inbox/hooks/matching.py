"""Which hooks match an event, and their permitted sends. Pure.

| on | event |
| --- | --- |
| on-message | every message |
| on-dm | a message to this member alone |
| on-mention | a message whose meta.mentions includes this member |
| on-topic-NAME | a message in that topic |
| on-disconnect, on-reconnect | a change of the connection to a broker |
| on-startup | the start of the appliance |

| scope in the settings | scope in the grant | allows |
| --- | --- | --- |
| reply:event | reply:event | a reply to where the message came from |
| dm:send:sender | dm:send:KEY | a message to its sender |
| topic:NAME:post | the same, if the event is in that topic | a post to the topic |
"""

from collections.abc import Collection
from typing import Any

from appliance.inbox.event import InboxEvent
from appliance.inbox.hooks.settings import HookCommand
from appliance.inbox.wire import InboxMessage
from appliance.mesh.push import Push

TOPIC = "on-topic-"
_FACTS = {
    "daemon_disconnect": "on-disconnect", "daemon_reconnect": "on-reconnect",
    "startup": "on-startup",
}  # fmt: skip
HOPS = "agentlip_hops"
REPLY, SENDER = "reply:event", "dm:send:sender"


def event_names(event: InboxEvent) -> list[str]:
    """Return the hook names of an event without a message."""
    return [_FACTS[event.name]] if event.name in _FACTS else []


def message_names(message: Push, own: Collection[str]) -> list[str]:
    """Return a message's hook names. `own`: key and names of this member in the mesh."""
    names = ["on-message"]
    if message.destination_kind == "dm":
        names.append("on-dm")
    if _mentions(message.meta) & set(own):
        names.append("on-mention")
    if message.topic is not None:
        names.append(TOPIC + message.topic)
    return names


def grant_scopes(command: HookCommand, message: InboxMessage | None) -> tuple[str, ...]:
    """Return the settings' scopes, bound to this event; none for an event without a message."""
    if message is None:
        return ()
    topic = f"topic:{message.topic or ''}:post"  # without a topic no scopes are equal
    bound = {REPLY: REPLY, SENDER: f"dm:send:{message.sender_pubkey}", topic: topic}
    return tuple(dict.fromkeys(bound[scope] for scope in command.scopes if scope in bound))


def hops(meta: Any) -> int:
    """Return how many hooks in a row caused this message."""
    count = meta.get(HOPS) if isinstance(meta, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def label(name: str) -> str:
    """Return a hook's metric label: all topics share one, because users name them."""
    return f"{TOPIC}*" if name.startswith(TOPIC) else name


def _mentions(meta: Any) -> set[str]:
    names = meta.get("mentions") if isinstance(meta, dict) else None
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()

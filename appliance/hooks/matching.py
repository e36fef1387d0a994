"""Which hook wants which event, and what it may send then. Pure.

| on | of |
| --- | --- |
| on-message | every message |
| on-dm | a message to this member alone |
| on-mention | a message whose meta.mentions names this member |
| on-topic-NAME | a message in that topic |
| on-disconnect, on-reconnect | the link to a broker |
| on-startup | the start of the appliance |

| scope, as declared | as granted | may |
| --- | --- | --- |
| reply:event | reply:event | answer, where the message came from |
| dm:send:sender | dm:send:KEY | write to who sent the message |
| topic:NAME:post | the same, for an event of that topic | post there |
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from appliance.hooks.settings import HookCommand
from appliance.inbox.event import Event
from appliance.inbox.wire import InboxMessage

PLAIN = ("on-message", "on-dm", "on-mention", "on-disconnect", "on-reconnect", "on-startup")
TOPIC = "on-topic-"
NOT_OURS = {
    "on-file-share": "files are not shared by this appliance",
    "pre-send": "a hook in the way of a send would make its 202 wait; check before you send",
}
_FACTS = {"daemon_disconnect": "on-disconnect", "daemon_reconnect": "on-reconnect"}
_TOPIC_SCOPE = re.compile(r"topic:([^\s:*]{1,200}):post")
HOPS = "agentlip_hops"
REPLY, SENDER = "reply:event", "dm:send:sender"


def problem(command: HookCommand) -> str | None:
    """What is wrong with a declaration, as a sentence; None: nothing."""
    name = command.on
    if name in NOT_OURS:
        return f"{name}: {NOT_OURS[name]}"
    if name not in PLAIN and not (name.startswith(TOPIC) and len(name) > len(TOPIC)):
        return f"there is no event {name}; there are {', '.join(PLAIN)} and on-topic-NAME"
    for scope in command.scopes:
        if scope not in (REPLY, SENDER) and not _TOPIC_SCOPE.fullmatch(scope):
            return f"there is no scope {scope}; there are {REPLY}, {SENDER} and topic:NAME:post"
    return None


def names_of(event: Event, own: Collection[str]) -> list[str]:
    """The hooks' names that this event has. `own`: our key and our names in the mesh."""
    message = event.message
    if message is None:
        return [_FACTS[event.name]] if event.name in _FACTS else []
    names = ["on-message"]
    if message.destination_kind == "dm":
        names.append("on-dm")
    if _mentions(message.meta) & set(own):
        names.append("on-mention")
    if message.topic is not None:
        names.append(TOPIC + message.topic)
    return names


def wants(command: HookCommand, names: Sequence[str], mesh: str) -> bool:
    return command.on in names and command.mesh in (None, mesh)


def granted(command: HookCommand, message: InboxMessage | None) -> tuple[str, ...]:
    """The declared scopes, bound to this one event. Without a message there is nobody to
    write to."""
    if message is None:
        return ()
    found = []
    for scope in command.scopes:
        posts = _TOPIC_SCOPE.fullmatch(scope)
        if scope == REPLY:
            found.append(scope)
        elif scope == SENDER:
            found.append(f"dm:send:{message.sender_pubkey}")
        elif posts and posts[1] == message.topic:
            found.append(scope)
    return tuple(dict.fromkeys(found))


def hops(meta: Any) -> int:
    """How many hooks this message comes from, one answering another."""
    found = meta.get(HOPS) if isinstance(meta, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def label(name: str) -> str:
    """For metrics: topics are named by users."""
    return f"{TOPIC}*" if name.startswith(TOPIC) else name


def _mentions(meta: Any) -> set[str]:
    named = meta.get("mentions") if isinstance(meta, dict) else None
    return {one for one in named if isinstance(one, str)} if isinstance(named, list) else set()

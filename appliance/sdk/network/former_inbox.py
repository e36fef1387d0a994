"""Reads an agent's version 1 inbox from the relay, which keeps both versions for 30 days.

Version 1 messages are neither encrypted nor signed for this agent: only the relay has verified the
sender. So only contacts' messages are handed over, with the version 1.0 and without a key. Other
agents' messages stay on the relay.
"""

from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from appliance.network.envelope import OpenedMessage
from appliance.sdk.network.incoming import MessageBeingHandled
from appliance.sdk.network.relay_client import RelayClient, RelayRefused

VERSION_1 = "1.0"
GONE = (404, 410)  # the relay does not serve version 1, or not any more


class FormerMessage(Struct, frozen=True, rename="camel"):
    from_: str = msgspec.field(name="from")
    type: str
    text: str
    message_id: str
    timestamp: str

    def opened(self) -> OpenedMessage:
        payload = {"text": self.text, "type": self.type, "version": VERSION_1}
        return OpenedMessage(
            VERSION_1, "direct", self.message_id, self.from_, self.timestamp, payload
        )


def poll_former_inbox(
    relay: RelayClient, contacts: Container[str], hand_over: Callable[[OpenedMessage], object]
) -> bool:
    """Hand over contacts' messages, oldest first, and ack each one that was handled. Return
    whether the relay serves version 1."""
    path, handled = f"/relay/inbox/{relay.name}", []
    try:
        rows = relay.request("GET", path)
    except RelayRefused as error:
        return error.details["status"] not in GONE
    try:
        for message in filter(None, map(_convert, rows)):
            if message.from_ in contacts:
                with suppress(MessageBeingHandled):
                    hand_over(message.opened())
                    handled.append(message.message_id)
    finally:
        if handled:
            relay.request("POST", f"{path}/ack", {"messageIds": handled})
    return True


def _convert(row: Any) -> FormerMessage | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(row, FormerMessage)
    return None

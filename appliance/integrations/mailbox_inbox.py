"""Stores agent network messages in the inbox, as messages in a reserved mesh."""

from typing import Any

import msgspec

from appliance.inbox.service import Inbox
from appliance.inbox.wire import NETWORK
from appliance.mesh.push import Push
from appliance.network.envelope import OpenedMessage


class NetworkInbox:
    """Stores messages. Recipient, sender and id identify a message; names contain no colons."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        inbox.add_mesh(NETWORK)

    def accept(self, recipient: str, message: OpenedMessage) -> None:
        payload: dict[str, Any] = dict(message.payload)
        text = payload.pop("text", None)
        if not isinstance(text, str):
            text, payload = msgspec.json.encode(message.payload).decode(), {}
        if message.group_id is not None:
            payload["group"] = message.group_id
        push = Push(
            message_id=message.message_id,
            client_message_id=f"{recipient}:{message.sender}:{message.message_id}",
            mesh=NETWORK,
            topic=None,
            destination_kind="dm",
            destination_ref=recipient,
            sender_pubkey=message.sender_key,
            sender_name=message.sender,
            priority="next",
            meta=payload or None,
            body=text,
            reply_to_id=None,
            created_at=message.timestamp,
        )
        self._inbox.receive(push, NETWORK)

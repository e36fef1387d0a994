"""Encodes events for /v1/events once for all readers. Pure."""

from typing import Any

import msgspec

from appliance.inbox import wire

_encode = msgspec.json.Encoder().encode


class InboxEvent(msgspec.Struct, frozen=True):
    """An event. `number`: the message's cursor, or the newest message's cursor before another
    event. Other events are not stored, and reach only current readers. `message` is set for
    messages."""

    number: int
    name: str
    mesh: str
    data: bytes
    message: wire.InboxMessage | None = None

    def sse(self) -> bytes:
        if self.message is None:
            return b"event: %b\ndata: %b\n\n" % (self.name.encode(), self.data)
        return b"id: %d\nevent: message\ndata: %b\n\n" % (self.number, self.data)


def of_message(message: wire.InboxMessage) -> InboxEvent:
    return InboxEvent(message.number, "message", message.mesh, _encode(message), message)


def of_fact(name: str, mesh: str, number: int, **facts: Any) -> InboxEvent:
    return InboxEvent(number, name, mesh, _encode({"mesh": mesh, **facts}))

"""What readers of /v1/events hear: one text, built once, for all of them. Pure."""

from typing import Any

import msgspec

from appliance.inbox import wire

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True):
    """`number` is the message's cursor, or that of the newest message before: what is no
    message is told to who listens, and not again. `message` for events of that name."""

    number: int
    name: str
    mesh: str
    data: bytes
    message: wire.InboxMessage | None = None

    def sse(self) -> bytes:
        if self.message is None:
            return b"event: %b\ndata: %b\n\n" % (self.name.encode(), self.data)
        return b"id: %d\nevent: message\ndata: %b\n\n" % (self.number, self.data)


def of_message(message: wire.InboxMessage) -> Event:
    return Event(message.number, "message", message.mesh, _encode(message), message)


def of_fact(name: str, mesh: str, number: int, **facts: Any) -> Event:
    return Event(number, name, mesh, _encode({"mesh": mesh, **facts}))

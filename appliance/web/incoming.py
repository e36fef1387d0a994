"""Splits a client's bytes on a WebSocket into messages (RFC 6455 §5.2).

Most frames of clients are complete, masked, final text frames of moderate length. They are parsed
here, in a fifth of the library's time. Valid pings and pongs are parsed here as well, so that many
pings get one pong. All other frames (fragments, long frames, invalid ones) are passed to the
library unchanged, which also validates them. Only complete frames are taken out, so the library
always starts at a frame.

Frames without a message are free for the sender and cost the server time, so they are limited:
control frames and short fragments by a token bucket, and fragments also for each message.
"""

from collections.abc import Iterable
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol

from appliance.kernel.errors import Exhausted, Invalid
from appliance.kernel.token_bucket import TokenBucket

try:  # written in C; not available everywhere
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover
    from websockets.utils import apply_mask

DATA_OPCODES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
FINAL = 0x80
FINAL_TEXT = 0x81
MASKED = 0x80
CONTROL_BYTES_MAX = 125  # RFC 6455 §5.5
PING, PONG = 0x89, 0x8A  # with FIN set and no reserved bit
BUFFERED_BYTES_MAX = 16 * 1024  # the library buffers a longer incomplete frame
SHORT_FRAGMENT_BYTES = 1024  # longer ones are limited by the size of the message
MESSAGES_MAX = 256  # returned at once, so that a chunk of tiny ones does not block the loop


class FrameFlood(Exhausted):
    """Too many frames without a message. `limit` is the name of the limit, for the metric."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class Incoming:
    """`take` accepts bytes as they arrive and returns messages in the order in which they ended."""

    def __init__(self, protocol: Protocol, quota: TokenBucket, fragments_max: int) -> None:
        self._protocol = protocol
        self._quota = quota
        self._now = 0.0
        self._fragments_max = fragments_max
        self._fragments = 0  # fragments of the current message
        self._pong: bytes | None = None
        self._longest = 0xFFFF
        self._buffered = b""  # bytes not parsed yet, or the beginning of a frame
        self._owed = 0  # missing bytes of a frame that the library has begun
        self._fragment_data: list[bytes] = []
        self.has_more = False  # `take(b"")` returns more messages
        self.limit(protocol.max_message_size or 0xFFFF, quota)

    def limit(self, message_bytes_max: int, quota: TokenBucket) -> None:
        """Apply these limits from the next frame on."""
        self._protocol.max_message_size = message_bytes_max
        self._longest = min(message_bytes_max, 0xFFFF)
        self._quota = quota

    def take_pong(self) -> bytes | None:
        """The pong for the newest ping since the last call (RFC 6455 §5.5.3: one is enough)."""
        pong, self._pong = self._pong, None
        return pong

    def clear(self) -> None:
        """Drop the bytes that are not returned yet."""
        self._buffered = b""
        self._fragment_data = []

    def set_time(self, now: float) -> None:
        """The monotonic time in seconds at which the next bytes arrived."""
        self._now = now

    @property
    def over(self) -> bool:
        """Whether the client has closed, or sent something that ends the connection."""
        return self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None

    def take(self, data: bytes) -> list[bytes]:
        """The next messages, at most MESSAGES_MAX; raises FrameFlood or Invalid."""
        if self._buffered:
            data = self._buffered + data
            self._buffered = b""
        self.has_more = False
        messages: list[bytes] = []
        at = min(self._owed, len(data))
        if at:
            self._owed -= at
            self._pass_on(data[:at], messages)
        while at < len(data):
            if len(messages) >= MESSAGES_MAX:
                self._buffered = data[at:]
                self.has_more = True
                break
            end = self._cut(data, at, messages)
            if end is not None:
                at = end
                continue
            if self.over:
                break
            end = frame_end(data, at)
            if end is None or end > len(data):
                self._buffer(data, at, end)
                break
            if is_ping_or_pong(data, at):
                self._answer(data, at, end)
            else:
                self._count(data, at, end)
                self._pass_on(data[at:end], messages)
            at = end
        return messages

    def _answer(self, data: bytes, at: int, end: int) -> None:
        """Respond to a ping with its payload. A pong is only counted."""
        self._charge()
        if data[at] == PING:
            payload = apply_mask(data[at + 6 : end], data[at + 2 : at + 6])
            self._pong = bytes((PONG, len(payload))) + payload

    def _count(self, data: bytes, at: int, end: int) -> None:
        """Raise FrameFlood for too many fragments. Other frames are limited by their bytes."""
        if data[at] & 0x0F not in DATA_OPCODES:
            return
        if data[at] & FINAL:
            self._fragments = 0
            return
        self._fragments += 1
        if self._fragments > self._fragments_max:
            message = f"more than {self._fragments_max} fragments in one message"
            raise FrameFlood(message, "fragments")
        if end - at < SHORT_FRAGMENT_BYTES:
            self._charge()

    def _charge(self) -> None:
        if not self._quota.take_up_to(1, self._now):
            raise FrameFlood(
                f"more than {self._quota.rate:g} control frames and short fragments a second",
                "control_frames",
            )

    def _cut(self, data: bytes, at: int, messages: list[bytes]) -> int | None:
        """Parse ordinary frames from `at` on; returns their end, or None."""
        protocol = self._protocol
        if protocol.current_size is not None or self.over:
            return None  # inside a fragmented message, or at the end
        size, began, left = len(data), at, MESSAGES_MAX - len(messages)
        while left and size - at > 6 and data[at] == FINAL_TEXT:
            length = data[at + 1] - MASKED
            start = at + 6
            if length == 126:
                length = int.from_bytes(data[at + 2 : at + 4], "big")
                start = at + 8
            if not 0 <= length <= self._longest or start + length > size or data[at + 1] == 0xFF:
                break
            at = start + length
            left -= 1
            messages.append(apply_mask(data[start:at], data[start - 4 : start]))
        return at if at > began else None

    def _buffer(self, data: bytes, at: int, end: int | None) -> None:
        """Keep an incomplete frame: an ordinary one here, any other in the library."""
        usual = data[at] == FINAL_TEXT and self._protocol.current_size is None
        if end is None or (usual and end - at <= BUFFERED_BYTES_MAX) or is_ping_or_pong(data, at):
            self._buffered = data[at:]
        else:
            self._count(data, at, end)
            self._owed = end - len(data)
            self._pass_on(data[at:], [])

    def _pass_on(self, data: bytes, messages: list[bytes]) -> None:
        """Pass bytes to the library, and collect the messages that end in them."""
        self._protocol.receive_data(data)
        frames: Iterable[Any] = self._protocol.events_received()
        for frame in frames:
            if not isinstance(frame, Frame) or frame.opcode not in DATA_OPCODES:
                continue  # the library handles control frames
            if frame.opcode is Opcode.BINARY:
                raise Invalid("binary frames are not supported")
            self._fragment_data.append(bytes(frame.data))
            if frame.fin:
                messages.append(b"".join(self._fragment_data))
                self._fragment_data = []


def is_ping_or_pong(data: bytes, at: int) -> bool:
    """Whether the frame that begins at `at` is a valid ping or pong of a client."""
    return data[at] in (PING, PONG) and MASKED <= data[at + 1] <= MASKED + CONTROL_BYTES_MAX


def frame_end(data: bytes, at: int) -> int | None:
    """The end of the frame that begins at `at`, even if incomplete; None: incomplete header."""
    if len(data) - at < 2:
        return None
    length = data[at + 1] & 0x7F
    start = at + 2 + (4 if data[at + 1] & MASKED else 0)
    if length == 126:
        start += 2
        if len(data) < at + 4:
            return None
        length = int.from_bytes(data[at + 2 : at + 4], "big")
    elif length == 127:
        start += 8
        if len(data) < at + 10:
            return None
        length = int.from_bytes(data[at + 2 : at + 10], "big")
    return start + length

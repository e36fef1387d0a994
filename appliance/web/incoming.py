"""A client's bytes on a WebSocket, cut into messages (RFC 6455 §5.2).

Nearly all that clients say are whole, masked, final text frames of moderate length. These
are cut out here: a frame costs a fifth of what the library takes for it. Well-formed pings
and pongs are read here as well, so that many pings get one pong. Everything else (fragments,
long frames, broken ones) goes to the library as it came, which also judges it. Nothing but
whole frames is cut, so the library always starts at a frame.

Frames that carry no message cost the sender nothing and the server time, so they are limited:
control frames and short fragments by a token bucket, fragments also for each message.
"""

from collections.abc import Iterable
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol

from appliance.kernel.errors import Exhausted, Invalid

try:  # written in C; not built everywhere
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover
    from websockets.utils import apply_mask

DATA_OPCODES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
FINAL = 0x80
FINAL_TEXT = 0x81
MASKED = 0x80
CONTROL_BYTES_MAX = 125  # RFC 6455 §5.5
PING, PONG = 0x89, 0x8A  # with FIN set and no reserved bit
HELD_BYTES_MAX = 16 * 1024  # a longer unfinished frame waits in the library
SHORT_FRAGMENT_BYTES = 1024  # longer fragments are limited by the size of their message
MESSAGES_MAX = 256  # handed out at once, so that a chunk of tiny ones occupies nobody for long


class FrameFlood(Exhausted):
    """Too many frames that carry no message. `limit` names which limit, for the metric."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class FrameQuota:
    """A token bucket for control frames and short fragments of one socket."""

    __slots__ = ("_burst", "_left", "_rate", "_refilled")

    def __init__(self, per_second: float, burst: float, now: float = 0.0) -> None:
        self._rate = per_second
        self._burst = self._left = burst
        self._refilled = now

    def refill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._refilled) * self._rate)
        self._refilled = now

    def take(self) -> None:
        if self._left < 1:
            raise FrameFlood(
                f"more than {self._rate:g} control frames and short fragments a second",
                "control_frames",
            )
        self._left -= 1


class Incoming:
    """`take` bytes as they come; messages leave in the order in which they ended."""

    def __init__(self, protocol: Protocol, quota: FrameQuota, fragments_max: int) -> None:
        self._protocol = protocol
        self._quota = quota
        self._fragments_max = fragments_max
        self._fragments = 0  # of the message that is being received
        self._pong: bytes | None = None
        self._longest = 0xFFFF
        self._held = b""  # bytes that were not looked at, or the beginning of a frame
        self._owed = 0  # bytes of a frame that the library has the beginning of
        self._parts: list[bytes] = []
        self.has_more = False  # `take(b"")` gives more messages
        self.limit(protocol.max_message_size or 0xFFFF, quota)

    def limit(self, message_bytes_max: int, quota: FrameQuota) -> None:
        """From the next frame on, these limits hold."""
        self._protocol.max_message_size = message_bytes_max
        self._longest = min(message_bytes_max, 0xFFFF)
        self._quota = quota

    def take_pong(self) -> bytes | None:
        """The answer to the newest ping since the last call (RFC 6455 §5.5.3: one is enough)."""
        pong, self._pong = self._pong, None
        return pong

    def refill(self, now: float) -> None:
        self._quota.refill(now)

    @property
    def over(self) -> bool:
        """The client said goodbye, or something that ends the connection."""
        return self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None

    def take(self, data: bytes) -> list[bytes]:
        """The next messages, at most MESSAGES_MAX; raises FrameFlood or Invalid."""
        if self._held:
            data = self._held + data
            self._held = b""
        self.has_more = False
        messages: list[bytes] = []
        at = min(self._owed, len(data))
        if at:
            self._owed -= at
            self._pass_on(data[:at], messages)
        while at < len(data):
            if len(messages) >= MESSAGES_MAX:
                self._held = data[at:]
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
                self._hold(data, at, end)
                break
            if is_ping_or_pong(data, at):
                self._answer(data, at, end)
            else:
                self._count(data, at, end)
                self._pass_on(data[at:end], messages)
            at = end
        return messages

    def _answer(self, data: bytes, at: int, end: int) -> None:
        """A ping is answered with its payload; a pong is only counted."""
        self._quota.take()
        if data[at] == PING:
            payload = apply_mask(data[at + 6 : end], data[at + 2 : at + 6])
            self._pong = bytes((PONG, len(payload))) + payload

    def _count(self, data: bytes, at: int, end: int) -> None:
        """Raises when a fragment is one too many. Other frames are limited by their bytes."""
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
            self._quota.take()

    def _cut(self, data: bytes, at: int, messages: list[bytes]) -> int | None:
        """Take usual frames from `at` on; where they end, None when the first is not one."""
        protocol = self._protocol
        if protocol.current_size is not None or self.over:  # inside of fragments, or at the end
            return None
        size, began, room = len(data), at, MESSAGES_MAX - len(messages)
        while room and size - at > 6 and data[at] == FINAL_TEXT:
            length = data[at + 1] - MASKED
            start = at + 6
            if length == 126:
                length = int.from_bytes(data[at + 2 : at + 4], "big")
                start = at + 8
            if not 0 <= length <= self._longest or start + length > size or data[at + 1] == 0xFF:
                break
            at = start + length
            room -= 1
            messages.append(apply_mask(data[start:at], data[start - 4 : start]))
        return at if at > began else None

    def _hold(self, data: bytes, at: int, end: int | None) -> None:
        """An unfinished frame: a usual one waits here, any other in the library."""
        usual = data[at] == FINAL_TEXT and self._protocol.current_size is None
        if end is None or (usual and end - at <= HELD_BYTES_MAX) or is_ping_or_pong(data, at):
            self._held = data[at:]
        else:
            self._count(data, at, end)
            self._owed = end - len(data)
            self._pass_on(data[at:], [])

    def _pass_on(self, data: bytes, messages: list[bytes]) -> None:
        """Have the library read these bytes; whole messages that end in them."""
        self._protocol.receive_data(data)
        frames: Iterable[Any] = self._protocol.events_received()
        for frame in frames:
            if not isinstance(frame, Frame) or frame.opcode not in DATA_OPCODES:
                continue  # control frames are the library's own business
            if frame.opcode is Opcode.BINARY:
                raise Invalid("binary frames are not part of this protocol")
            self._parts.append(bytes(frame.data))
            if frame.fin:
                messages.append(b"".join(self._parts))
                self._parts = []


def is_ping_or_pong(data: bytes, at: int) -> bool:
    """Whether the frame that begins at `at` is a valid ping or pong of a client."""
    return data[at] in (PING, PONG) and MASKED <= data[at + 1] <= MASKED + CONTROL_BYTES_MAX


def frame_end(data: bytes, at: int) -> int | None:
    """Where the frame that begins at `at` ends, whole or not; None: its head is not all there."""
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

"""A client's bytes on a WebSocket, cut into messages (RFC 6455 §5.2).

Nearly all that clients say are whole, masked, final text frames of moderate length. These
are cut out here: a frame costs a fifth of what the library takes for it. Everything else
(control frames, fragments, long ones, broken ones) goes to the library as it came, which
also judges it. Nothing but whole frames is cut, so the library always starts at a frame.
"""

from collections.abc import Iterable
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol

from appliance.kernel.errors import Invalid

try:  # written in C; not built everywhere
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover
    from websockets.utils import apply_mask

DATA_OPCODES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
FINAL_TEXT = 0x81
MASKED = 0x80
HELD_BYTES_MAX = 16 * 1024  # a longer unfinished frame waits in the library


class Incoming:
    """`take` bytes as they come; messages leave in the order in which they ended."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._longest = min(protocol.max_message_size or 0xFFFF, 0xFFFF)
        self._held = b""  # the beginning of a frame
        self._owed = 0  # bytes of a frame that the library has the beginning of
        self._parts: list[bytes] = []

    @property
    def over(self) -> bool:
        """The client said goodbye, or something that ends the connection."""
        return self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None

    def take(self, data: bytes) -> list[bytes]:
        if self._held:
            data = self._held + data
            self._held = b""
        messages: list[bytes] = []
        at = min(self._owed, len(data))
        if at:
            self._owed -= at
            self._pass_on(data[:at], messages)
        while at < len(data):
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
            self._pass_on(data[at:end], messages)
            at = end
        return messages

    def _cut(self, data: bytes, at: int, messages: list[bytes]) -> int | None:
        """Take usual frames from `at` on; where they end, None when the first is not one."""
        protocol = self._protocol
        if protocol.current_size is not None or self.over:  # inside of fragments, or at the end
            return None
        size, began = len(data), at
        while size - at > 6 and data[at] == FINAL_TEXT:
            length = data[at + 1] - MASKED
            start = at + 6
            if length == 126:
                length = int.from_bytes(data[at + 2 : at + 4], "big")
                start = at + 8
            if not 0 <= length <= self._longest or start + length > size or data[at + 1] == 0xFF:
                break
            at = start + length
            messages.append(apply_mask(data[start:at], data[start - 4 : start]))
        return at if at > began else None

    def _hold(self, data: bytes, at: int, end: int | None) -> None:
        """An unfinished frame: a usual one waits here, any other in the library."""
        usual = data[at] == FINAL_TEXT and self._protocol.current_size is None
        if end is None or (usual and end - at <= HELD_BYTES_MAX):
            self._held = data[at:]
        else:
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

"""Splits a client's bytes on a WebSocket into messages (RFC 6455 §5.2).

`websockets` can do this too, but takes five times as long for a message, and answers each ping,
where many pings need only one pong.

Frames without a message are free for the sender and cost the server time, so they are limited:
control frames and short fragments by a token bucket, and fragments also for each message.
"""

from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Exhausted, Invalid
from appliance.kernel.token_bucket import TokenBucket

try:  # written in C; not available everywhere
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover
    from websockets.utils import apply_mask

# A frame's first byte: the bit FIN and the opcode. The reserved bits must not be set.
TEXT, FIRST, MIDDLE, LAST = 0x81, 0x01, 0x00, 0x80  # a whole message, and another one's fragments
BINARY = (0x82, 0x02)
CLOSE, PING, PONG = 0x88, 0x89, 0x8A
MASKED = 0x80
HEADER_BYTES_MIN = 2
CONTROL_BYTES_MAX = 125  # RFC 6455 §5.5
SHORT_FRAGMENT_BYTES = 1024  # longer ones are limited by message size
FRAGMENTS_MAX = 1000  # in a message
MESSAGES_MAX = 256  # returned at once, so that a chunk with tiny ones does not block the loop


class Incoming:
    """`take` accepts bytes as they arrive and returns messages in the order in which they ended.

    has_more  `feed(b"")` returns more messages
    closed    code and reason of the client's close frame, or why its bytes can't be read on
    """

    def __init__(self, message_bytes_max: int, quota: TokenBucket, clock: Clock) -> None:
        self._clock = clock
        self._buffer = bytearray()
        self._wanted = HEADER_BYTES_MIN  # the first frame's bytes in the buffer, as far as known
        self._fragments: list[bytes] = []  # the current message's received part
        self._fragment_bytes = 0
        self._pong: bytes | None = None
        self.has_more = False
        self.closed: tuple[int, str] | None = None
        self.limit(message_bytes_max, quota)

    def limit(self, message_bytes_max: int, quota: TokenBucket) -> None:
        """Apply these limits from the next frame on."""
        self._bytes_max = message_bytes_max
        self._quota = quota

    def take_pong(self) -> bytes | None:
        """Return the pong for the newest ping since the last call (RFC 6455 §5.5.3: one is
        enough)."""
        pong, self._pong = self._pong, None
        return pong

    def clear(self) -> None:
        """Drop the bytes that are not returned yet."""
        self._buffer.clear()
        self._fragments.clear()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the next messages, at most MESSAGES_MAX; raise Exhausted or Invalid."""
        buffer = self._buffer
        buffer += data
        messages: list[bytes] = []
        at, size = 0, len(buffer)
        self.has_more = False
        while size - at >= self._wanted and self.closed is None:
            if len(messages) >= MESSAGES_MAX:
                self.has_more = True
                break
            length = buffer[at + 1] - MASKED
            start = at + 6  # behind the four-byte mask
            if length >= 126:
                start += 2 if length == 126 else 8
                self._wanted = start - at
                if start > size:
                    break
                length = int.from_bytes(buffer[at + 2 : start - 4], "big")
            if length < 0:
                self.closed = CloseCode.PROTOCOL_ERROR, "client frames must be masked"
            elif length > self._bytes_max:
                self._refuse_size()
            elif start + length > size:
                self._wanted = start + length - at
            else:
                self._wanted = HEADER_BYTES_MIN
                end = start + length
                payload = apply_mask(buffer[start:end], buffer[start - 4 : start])
                if buffer[at] == TEXT and not self._fragments:
                    messages.append(payload)
                else:
                    self._take_other(buffer[at], payload, messages)
                at = end
        del buffer[:at]
        return messages

    def _take_other(self, first: int, payload: bytes, messages: list[bytes]) -> None:
        """Take a frame that is not a whole message."""
        if first in (FIRST, MIDDLE, LAST) and bool(self._fragments) == (first != FIRST):
            self._take_fragment(first, payload, messages)
        elif first in (CLOSE, PING, PONG) and len(payload) <= CONTROL_BYTES_MAX:
            if first == CLOSE:
                self.closed = _close_of(payload)
                return
            self._charge()
            if first == PING:
                self._pong = bytes((PONG, len(payload))) + payload
        elif first in BINARY and not self._fragments:
            raise Invalid("binary frames are not supported")
        else:
            self.closed = CloseCode.PROTOCOL_ERROR, "unexpected or invalid frame"

    def _take_fragment(self, first: int, payload: bytes, messages: list[bytes]) -> None:
        self._fragments.append(payload)
        self._fragment_bytes += len(payload)
        if self._fragment_bytes > self._bytes_max:
            self._refuse_size()
        elif first == LAST:
            messages.append(b"".join(self._fragments))
            self._fragments.clear()
            self._fragment_bytes = 0
        elif len(self._fragments) > FRAGMENTS_MAX:
            raise Exhausted(f"more than {FRAGMENTS_MAX} fragments in one message")
        elif len(payload) < SHORT_FRAGMENT_BYTES:
            self._charge()

    def _charge(self) -> None:
        if self._quota.charge(1, self._clock.monotonic()):
            rate = f"{self._quota.rate:g}"
            raise Exhausted(f"more than {rate} control frames and short fragments a second")

    def _refuse_size(self) -> None:
        self.closed = CloseCode.MESSAGE_TOO_BIG, f"more than {self._bytes_max} bytes in a message"


def _close_of(payload: bytes) -> tuple[int, str]:
    """Return the code and reason in a close frame."""
    try:
        close = Close.parse(payload)
    except UnicodeDecodeError:
        return CloseCode.INVALID_DATA, "the reason is not valid UTF-8"
    except ProtocolError as error:
        return CloseCode.PROTOCOL_ERROR, str(error)
    return close.code, close.reason

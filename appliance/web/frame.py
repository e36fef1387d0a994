"""WebSocket frames to clients, encoded once (RFC 6455 §5.2)."""

from collections.abc import Iterable, Iterator

WRITE_BYTES = 256 * 1024  # one write's size; a slow client keeps at most one waiting
REASON_BYTES_MAX = 123  # RFC 6455 §5.5, less the code
NO_CODE = 1005  # stands for a close frame without code


def pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join `parts` into writes with about WRITE_BYTES."""
    size, some = 0, []
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= WRITE_BYTES:
            yield b"".join(some)
            size, some = 0, []
    if some:
        yield b"".join(some)


def text_frame(payload: bytes) -> bytes:
    """Make an unmasked text frame (RFC 6455 §5.2)."""
    return text_header(len(payload)) + payload


def text_header(size: int) -> bytes:
    """Return a text frame's header for `size` payload bytes."""
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big")
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")


def close_frame(code: int, reason: str) -> bytes:
    """Return a close frame, with as much of `reason` as fits."""
    text = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
    payload = b"" if code == NO_CODE else code.to_bytes(2, "big") + text
    return bytes((0x88, len(payload))) + payload

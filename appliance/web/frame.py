"""WebSocket frames to clients: encoded once, sent to many (RFC 6455 §5.2)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

WRITE_BYTES = 256 * 1024  # joined into one write; a client that reads slowly keeps one waiting


def pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """`parts` joined into writes of about WRITE_BYTES, made one by one."""
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
    """One unmasked text frame (RFC 6455 §5.2)."""
    return text_header(len(payload)) + payload


@lru_cache(maxsize=4096)  # payloads of a log are of few sizes
def text_header(size: int) -> bytes:
    """What stands before `size` bytes of payload in a text frame."""
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big")
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")

"""WebSocket frames to clients: encoded once, sent to many (RFC 6455 §5.2)."""


def text_frame(payload: bytes) -> bytes:
    """One unmasked text frame (RFC 6455 §5.2)."""
    size = len(payload)
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big") + payload
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload

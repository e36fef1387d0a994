"""Opens a WebSocket by its handshake (RFC 6455 §4)."""

from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol

from appliance.kernel.errors import Invalid

# Not passed to the library: nothing is compressed, and the subprotocol may contain a token.
NOT_NEGOTIATED = ("HTTP_SEC_WEBSOCKET_EXTENSIONS", "HTTP_SEC_WEBSOCKET_PROTOCOL")


def is_upgrade(environ: dict[str, Any]) -> bool:
    return "websocket" in environ.get("HTTP_UPGRADE", "").lower()


def handshake(environ: dict[str, Any], subprotocol: str | None) -> bytes:
    """Return the 101 response to an upgrade request. Raises Invalid for any other request."""
    if environ["REQUEST_METHOD"] != "GET":  # the library would accept any method
        raise Invalid("a WebSocket must be opened with GET")
    headers = Headers(
        [
            (name[5:].replace("_", "-").title(), value)
            for name, value in environ.items()
            if name.startswith("HTTP_") and name not in NOT_NEGOTIATED
        ]
    )
    response = ServerProtocol().accept(Request("/", headers))
    if subprotocol is not None:
        response.headers["Sec-WebSocket-Protocol"] = subprotocol
    if response.status_code != 101:
        raise Invalid(
            "not a WebSocket handshake",
            details={"reason": "upgrade refused"},
            hint="see RFC 6455 §4.1, or use a WebSocket client",
        )
    return response.serialize()

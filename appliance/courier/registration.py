"""The data with which the courier is registered at a Hostess, a kernel or a Router. Pure."""

from typing import Any

from appliance.courier.wire import FEATURES, VERSION

HEARTBEAT_SECONDS = 5
SERVICE = "courier"
CLASS_HEX = "0xC0DE"
KERNEL = {"type": "transform", "accepts": ["envelope"], "produces": ["envelope", "view"]}


def registration(host: str, port: int, boot_id: str, auth: str, streams: int) -> dict[str, Any]:
    """Return the arguments for `register` (Hostess, kernel) and `announce` (Router).

    auth  yes, no or optional
    """
    mechanism = "bearer" if auth != "no" else "none"
    url = f"http://{host}:{port}" if port else None
    return {
        "identity": ":".join((host, SERVICE, CLASS_HEX, "agentlip", auth, mechanism, boot_id)),
        "hostess": {
            "fqdn": host,
            "servername": SERVICE,
            "classHex": CLASS_HEX,
            "owner": "agentlip",
            "auth": auth,
            "authMechanism": mechanism,
            "terminals": [
                {"name": "enqueue", "type": "http", "direction": "input"},
                {"name": "publish", "type": "websocket", "direction": "input"},
                {"name": "subscribe", "type": "websocket", "direction": "output"},
                {"name": "live", "type": "websocket", "direction": "output"},
            ],
            "capabilities": {**KERNEL, "features": list(FEATURES), "version": VERSION},
            "metadata": {"streams": streams, "boot_id": boot_id},
            "uuid": boot_id,
        },
        "endpoint": {
            "type": "http",
            "coordinates": {"url": url},
            "metadata": {"stats": "/v1/stats", "health": "/health"},
        },
        "kernel": {"name": SERVICE, "capabilities": {**KERNEL, "features": list(FEATURES)}},
        "heartbeat_seconds": HEARTBEAT_SECONDS,
    }

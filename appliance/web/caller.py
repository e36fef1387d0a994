"""Is the caller of a request that took its time still there?"""

import socket
from collections.abc import Mapping
from typing import Any


def is_there(environ: Mapping[str, Any]) -> bool:
    """False when its connection has ended; costs one look, and takes nothing from it."""
    raw = environ.get("gunicorn.socket")
    if raw is None:
        return True
    plain = getattr(raw, "_sock", raw)  # gevent's socket without the waiting
    try:
        return bool(plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False

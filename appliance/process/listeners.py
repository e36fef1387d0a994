"""Opens the listening sockets: a port, and `.agentlip/sock`.

Without a configured port, the first start uses 7464, or the next free one, and later starts use
that port or fail. A port is free if binding succeeds, so concurrent starts get different ports.
"""

import errno
import os
import socket

from appliance.kernel.errors import Conflict
from appliance.kernel.log import Log
from appliance.kernel.ownership import read_small
from appliance.process.port_owner import describe_port_owner
from appliance.workspace.datadir import DataDir

DEFAULT_PORT = 7464
PORT_ATTEMPTS_MAX = 100  # then any free port
BACKLOG = 1024
PORT_CHANGED = "PORT_CHANGED"


class PortTaken(Conflict):
    code = "PORT_TAKEN"
    default_message = "the port is in use"
    default_hint = "stop the program that uses it, or use any free port: agentlipd up --port 0"


def candidates(wanted: int | None, remembered: int, default: int = DEFAULT_PORT) -> list[int]:
    """Return the ports to try, in order; 0 is any free one. `wanted`: the port in the settings."""
    if wanted:
        return [wanted]
    if wanted == 0:
        return [remembered, 0] if remembered else [0]
    if remembered:
        return [remembered]
    return [*range(default, min(default + PORT_ATTEMPTS_MAX, 65_536)), 0]


def bind(
    host: str, wanted: int | None, datadir: DataDir, log: Log, default: int = DEFAULT_PORT
) -> socket.socket:
    """Open the listening socket and store its port for the next start."""
    ports = candidates(wanted, remembered_port(datadir), default)
    for port in ports:
        try:
            listener = listen(host, port)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            if len(ports) == 1 or not taken:
                by = f" by {describe_port_owner(port)}" if taken else ""
                raise PortTaken(
                    f"can't listen on {host}:{port}: {error.strerror}{by}",
                    details={"host": host, "port": port},
                ) from error
            continue
        bound = int(listener.getsockname()[1])
        if ports[0] not in (0, bound):
            log.warning(
                f"port {ports[0]} is in use: listening on port {bound}, also after a restart",
                code=PORT_CHANGED,
            )
        datadir.write_private(datadir.dir / "port", f"{bound}\n")
        return listener
    raise PortTaken(details={"host": host})


def remembered_port(datadir: DataDir) -> int:
    """Return the stored port; 0 without one."""
    try:
        port = int(read_small(datadir.dir / "port") or b"")
    except ValueError:
        return 0
    return port if 0 < port < 65_536 else 0


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Two sockets can be bound to a port as long as neither listens.
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_on_file(datadir: DataDir) -> socket.socket:
    """Open `.agentlip/sock`, for this user only. Call with the writer lock held."""
    path = datadir.socket_file
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"can't listen on {path.name}: {error.strerror or error}",
            hint=(
                "a socket path has at most 107 bytes; use a shorter workspace path, or set "
                "http.unix_socket = false"
            ),
        ) from error
    finally:
        os.umask(before)
    return listener

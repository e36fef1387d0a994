"""Runs Spark jobs in a container beside the appliance, on requests over a socket in a folder
that both share. Standard library only, because the Spark image has no other appliance library.

    python3 -m appliance.jobs.spark_service serve SOCKET PROGRAM...    beside Spark
    python3 -m appliance.jobs.spark_service request SOCKET             `spark` of [jobs]

The requesting process is a job attempt, whose output is passed to the program, so nothing is
copied. When the process ends, for example because the attempt was cancelled, the program is killed.
"""

import json
import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
from pathlib import Path
from typing import Any

ORDER_BYTES_MAX = 128 * 1024
CODE_BYTES_MAX = 16
NOT_STARTED = 127
OWN_VARIABLES = {"PATH", "HOME", "USER", "TMPDIR"}  # in the other container


class SparkServer(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """A server with a process for each request."""

    socket_type = socket.SOCK_SEQPACKET


def serve(path: str, program: list[str]) -> None:
    """Run the program for each request. Never returns."""
    Path(path).unlink(missing_ok=True)
    SparkServer(path, lambda connection, *_: _run(connection, program)).serve_forever()  # type: ignore[arg-type]


def _run(connection: Any, program: list[str]) -> None:
    """Serve one request. The program ends with the connection."""
    data, outputs, _, _ = socket.recv_fds(connection, ORDER_BYTES_MAX, 2)
    folder, arguments, environment = json.loads(data)
    process = subprocess.Popen(
        [*program, *arguments], cwd=folder, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1], start_new_session=True,
    )  # fmt: skip
    ended = os.pidfd_open(process.pid)
    select.select([connection, ended], [], [])
    os.killpg(process.pid, signal.SIGKILL)  # leads the group, and is not reaped yet
    connection.send(str(process.wait()).encode())


def request(path: str, arguments: list[str]) -> int:
    """Run a job with this process's output, and return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    order = json.dumps([str(Path.cwd()), arguments, environment]).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, [order], [1, 2])
        return int(connection.recv(CODE_BYTES_MAX) or NOT_STARTED)


if __name__ == "__main__":
    verb, path, *words = sys.argv[1:]
    if verb == "serve":
        serve(path, words)
    sys.exit(request(path, words))

"""Forks processes, and the commands among them. Standard library only.

    appliance ── sockets ──▶ template ── fork ──▶ supervisor
    appliance ── socket ── supervisor ── fork ──▶ command

The template has loaded what supervisors and commands need, because loading takes longer than most
commands. A command's supervisor gets an order, one line, and answers with the exit code when no
descendant is left.
"""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.child import supervisor

DESCRIPTORS_MAX = 4096


def main() -> None:
    serve(launch)


def serve(launch: Callable[[socket.socket, int], None]) -> None:
    """Fork a process for each socket, until the appliance hangs up. `launch` gets the socket, and a
    descriptor that hangs up when the template ends."""
    os.setsid()
    os.closerange(3, DESCRIPTORS_MAX)  # the appliance may have inherited some
    requests = socket.socket(fileno=os.dup(0))
    requests.setblocking(True)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGCHLD, lambda *_: supervisor.reap({}))
    template, kept_open = os.pipe()
    while descriptors := socket.recv_fds(requests, 1, 4)[1]:
        with contextlib.suppress(OSError):  # without a process, the appliance sees the end
            if os.fork() == 0:
                try:
                    requests.close()
                    os.close(kept_open)
                    raw = socket.socket(fileno=descriptors.pop())
                    raw.set_inheritable(False)
                    raw.setblocking(True)
                    for number, descriptor in enumerate(descriptors):
                        os.dup2(descriptor, number)
                        os.close(descriptor)
                    launch(raw, template)
                finally:
                    os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def launch(raw: socket.socket, template: int) -> None:
    """Run one command in the appliance's PID namespace, whose processes the command may need."""

    def answer(code: int | None) -> None:
        with contextlib.suppress(OSError):  # nobody waits
            raw.sendall(json.dumps(code).encode() + b"\n")

    if line := raw.makefile("rb").readline():
        command, environment, folder, niceness = json.loads(line)
        supervisor.split(raw.fileno(), template, subprocesses=None, graceful=True, after=answer)
        with contextlib.suppress(OSError, ValueError):
            os.nice(niceness)
            reset_signals()
            become(command, environment, folder)
        answer(None)


def reset_signals() -> None:
    """Reset the signals SIGPIPE and SIGXFSZ, which Python ignores, and a command would inherit
    that."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def become(command: list[str], environment: Mapping[str, str], folder: str) -> None:
    """Become the command. Raises OSError and ValueError."""
    os.chdir(folder)
    os.execvpe(command[0], command, environment)

"""Processes of the product, forked from one that has imported its modules.

Importing them takes three quarters of the time of a start, and the tests start some thousand
processes. Everything else is as in a process of its own: arguments, environment, working
directory, streams, signals and exit code. Tests of how a process begins start one themselves, and
so does an environment whose other variables than `PASSED` are not those of the first process.

`python -m tests.support.forkserver server|commands` gets orders on its standard input, a socket.
"""

import atexit
import gc
import json
import mimetypes
import os
import posix
import select
import signal
import socket
import subprocess
import sys
from _socket import socket as Socket  # gevent replaces the one of `socket`
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ORDER_BYTES_MAX = 1 << 17
READY = b"ready"
STREAMS = ("stdin", "stdout", "stderr")
ROOT = Path(__file__).parents[2]
PASSED = ("AGENTLIP_", "GIT_")  # nothing reads them while it is imported


class Order(NamedTuple):
    """`program` is a function without arguments that ends the process, `module:name`."""

    program: str
    arguments: list[str]
    folder: str
    variables: dict[str, str]
    constants: dict[str, Any] = {}


# -- in the process that forks -------------------------------------------------------------


def load(kind: str) -> None:
    """Imports what the processes of this kind need."""
    if kind == "server":
        import_module("appliance.server")  # first, because it patches the standard library
        import_module("tests.support.constants")
        mimetypes.init()
        return
    commands = import_module("appliance.cli").LAZY_COMMANDS
    import_module("appliance.cli_daemon")
    for target, _ in commands.values():
        import_module(target.partition(":")[0])


def next_order(orders: Socket) -> Order | None:
    """The next order, in the process that was forked for it. None if there are no more."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 3)  # type: ignore[arg-type]
        if not data:
            return None
        message = json.loads(data)
        if isinstance(message, int):
            status = posix.waitpid(message, 0)[1]
            orders.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = posix.fork()
        if pid == 0:
            orders.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return Order(*message)
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(str(pid).encode())


def run(order: Order) -> None:
    if gevent := sys.modules.get("gevent"):
        gevent.reinit()
    os.environ.clear()
    os.environ.update(order.variables)
    os.chdir(order.folder)
    sys.argv = order.arguments
    if order.constants:
        import_module("tests.support.constants").set_constants(order.constants)
    module, _, name = order.program.partition(":")
    sys.exit(getattr(import_module(module), name)())


# -- in a test -----------------------------------------------------------------------------


class ForkedProcess:
    """As `subprocess.Popen`, without its streams."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._handle = os.pidfd_open(pid)

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._handle)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._server.reap(self.pid)
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._handle], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks those of one kind. It ends with this one."""

    def __init__(self, kind: str, environment: dict[str, str]) -> None:
        self.environment = environment
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forkserver", kind],
                stdin=theirs, cwd=ROOT, env=environment,
            )  # fmt: skip
        assert self._orders.recv(len(READY)) == READY
        atexit.register(self.close)

    def fork(self, order: Order, streams: tuple[int, int, int]) -> ForkedProcess:
        message = json.dumps(order).encode()
        socket.send_fds(self._orders, [message], list(streams))
        return ForkedProcess(self, int(self._orders.recv(20)))

    def complete(self, order: Order, stdin: bytes, seconds_max: float) -> tuple[int, bytes, bytes]:
        """Exit code and output of a process, which gets all its input at once."""
        with ExitStack() as files:
            given, out, err = (
                files.enter_context(os.fdopen(os.memfd_create(name), "w+b")) for name in STREAMS
            )
            given.write(stdin)
            given.seek(0)
            process = self.fork(order, (given.fileno(), out.fileno(), err.fileno()))
            try:
                code = process.wait(seconds_max)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    def reap(self, pid: int) -> int:
        """The exit code of a process that has ended."""
        self._orders.send(str(pid).encode())
        return int(self._orders.recv(20))

    def close(self) -> None:
        self._orders.close()
        self._process.wait(60)


_servers: dict[str, ForkServer] = {}


def find(kind: str, usual: dict[str, str], environment: dict[str, str]) -> ForkServer | None:
    """The server of this kind, which starts in the usual environment, if its processes can have
    this one."""
    if kind not in _servers:
        _servers[kind] = ForkServer(kind, usual)
    server = _servers[kind]
    differs = server.environment.items() ^ environment.items()
    return server if all(name.startswith(PASSED) for name, _ in differs) else None


def main() -> None:
    orders = Socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    load(sys.argv[1])
    gc.freeze()
    orders.send(READY)
    order = next_order(orders)
    if order is not None:
        run(order)


if __name__ == "__main__":
    main()

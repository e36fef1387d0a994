"""The process around one attempt of a job. Standard library only.

    appliance ── socket ── supervisor ──▶ this process ── pipe ── the job's command

The first line on the socket is an order; the answer has the pid. The second line asks for the
end. Until then this process keeps the command's output, up to a limit, and its time limit. SIGTERM
cancels the attempt: the command's group gets SIGTERM, and SIGKILL after GRACE_SECONDS.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from appliance.child import supervisor, syscalls

LINE_BYTES_MAX = 1024 * 1024
GRACE_SECONDS = 10.0
DRAIN_SECONDS = 1.0  # for output of processes that outlive the command
READ_BYTES = 64 * 1024
TAIL_BYTES = 4096
ARTEFACTS_MAX = 100
NOT_STARTED = 127
MIB = 2**20


def main() -> None:
    raw = socket.socket(fileno=os.dup(0))
    raw.setblocking(True)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    lines = raw.makefile("rb")
    order = json.loads(lines.readline(LINE_BYTES_MAX) or b"null")
    if order is None:
        return
    own_namespace, _ = supervisor.split(raw, subprocesses=False)
    die_with_parent()
    attempt = LaunchedCommand(order)
    pid = int(Path("/proc/self").readlink().name) if own_namespace else os.getpid()
    if own_namespace:
        show_own_processes()
    _answer(raw, {"pid": pid, "limits": attempt.limits})
    if lines.readline(LINE_BYTES_MAX):
        _answer(raw, attempt.run())


def die_with_parent() -> None:
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def show_own_processes() -> None:
    """Have /proc list the processes of this PID namespace, under their numbers in it. Java, for
    one, looks for the processes that it has started there."""
    if syscalls.unshare(syscalls.CLONE_NEWNS) and syscalls.mount("/", syscalls.MS_PRIVATE):
        syscalls.mount("/proc", 0, "proc")


class LaunchedCommand:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._bytes = 0
        self._tail = b""
        self._reason = ""
        self._kill_at = float("inf")
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._end("cancelled"))
        self.limits = enter_cgroup(order) or "rlimits"
        self._pid = 0

    def run(self) -> dict[str, Any]:
        order, (output, write) = self._order, os.pipe()
        started = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            run_command(order, write, self.limits)
        os.close(write)
        with Path(order["output"]).open("wb") as file:
            code = self._follow(file, output, started + order["timeout_seconds"])
        return {
            "code": code,
            "reason": self._reason,
            "bytes": self._bytes,
            "tail": self._tail.decode(errors="replace"),
            "artefacts": list_artefacts(Path(order["artefacts"]), order["artefact_bytes_max"]),
        }

    def _follow(self, file: Any, output: int, deadline: float) -> int:
        """Keep the output until the command has ended; returns its exit code."""
        poll, code, is_open = select.poll(), None, True
        poll.register(output, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        last = float("inf")
        while code is None or (is_open and time.monotonic() < last):
            now = time.monotonic()
            if now >= deadline:
                deadline = float("inf")
                self._end("timed out")
            if now >= self._kill_at:
                self._kill(signal.SIGKILL)
                self._kill_at = now + 1.0
            until = min(deadline, self._kill_at, last) - now
            for descriptor, _ in poll.poll(min(max(until, 0.0) * 1000 + 1, 3_600_000)):
                if descriptor == self._wake:
                    os.read(self._wake, 512)
                elif data := os.read(output, READ_BYTES):
                    self._keep(file, data)
                else:
                    poll.unregister(output)
                    is_open = False
            if code is None and (code := self._exit_code()) is not None:
                last = time.monotonic() + DRAIN_SECONDS
                deadline = self._kill_at = float("inf")
        return code

    def _keep(self, file: Any, data: bytes) -> None:
        room = max(0, self._order["output_bytes_max"] - self._bytes)
        self._bytes += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if room:
            with contextlib.suppress(OSError):  # the disk is full
                file.write(data[:room])
                file.flush()

    def _exit_code(self) -> int | None:
        """Reaps everything that has ended: in a namespace of its own, this process gets orphans."""
        code = None
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    code = os.waitstatus_to_exitcode(ended[1])
        return code

    def _end(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            self._kill(signal.SIGTERM)
            self._kill_at = time.monotonic() + GRACE_SECONDS

    def _kill(self, number: int) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def run_command(order: dict[str, Any], write: int, limits: str) -> None:
    """Become the command. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        # Python ignores SIGPIPE and SIGXFSZ, and a command would inherit that.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.closerange(3, 64)
        if limits == "rlimits" and order["memory_mb"]:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (order["memory_mb"] * MIB,) * 2)
        if order["container"]:
            from appliance.jobs import engine  # only for containers: it takes long to import

            os._exit(engine.follow(**order["container"]))
        os.chdir(order["folder"])
        os.execvpe(order["command"][0], order["command"], order["environment"])
    except BaseException as error:
        os.write(2, f"not started: {getattr(error, 'strerror', None) or error}\n".encode())
    os._exit(NOT_STARTED)


def list_artefacts(folder: Path, bytes_max: int) -> list[dict[str, Any]]:
    """The regular files in the folder, by name. Those beyond the limits are deleted."""
    listed: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_file():
                continue
            size = path.stat().st_size
            bytes_max -= size
            if bytes_max < 0 or len(listed) == ARTEFACTS_MAX:
                path.unlink()
                continue
            import hashlib  # takes longer than the rest of a short job, and most leave no file

            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            name = str(path.relative_to(folder))
            listed.append({"name": name, "bytes": size, "sha256": digest})
    return listed


def enter_cgroup(order: dict[str, Any]) -> str:
    """`cgroup` if this process is in the order's cgroup, with the limits; "" if it can't be."""
    if not order["cgroup"]:
        return ""
    folder = Path(order["cgroup"])
    try:
        folder.mkdir()
        if order["memory_mb"]:
            (folder / "memory.max").write_text(str(order["memory_mb"] * MIB))
        if order["cpus"]:
            (folder / "cpu.max").write_text(f"{int(order['cpus'] * 100_000)} 100000")
        (folder / "cgroup.procs").write_text("0")
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return ""
    return "cgroup"


def _answer(raw: socket.socket, answer: dict[str, Any]) -> None:
    raw.sendall(json.dumps(answer).encode() + b"\n")

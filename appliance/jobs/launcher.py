"""Runs one job attempt in processes around its command. Standard library only.

    appliance ── sockets of attempts ──▶ template ── fork ──▶ supervisor
    appliance ── socket ── supervisor ── fork ──▶ launcher ── pipe ── the job's command

The first line on an attempt's socket is an order; the answer has the pids. The second line requests
the end. Until then the launcher keeps the command's output up to a limit, and enforces the time
limit. SIGTERM cancels the attempt: the command's group gets SIGTERM, and SIGKILL after
GRACE_SECONDS.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

from appliance import syscalls
from appliance.child import supervisor, template
from appliance.jobs.handles import GRACE_SECONDS, NOT_STARTED, TOKEN
from appliance.jobs.mask import OutputMask

LINE_BYTES_MAX = 1024 * 1024
REPEAT_SECONDS = 1.0  # between two SIGKILL
DRAIN_SECONDS = 1.0  # for output from processes that outlive the command
READ_BYTES = 64 * 1024
TAIL_BYTES = 4096
ARTEFACTS_MAX = 100
MIB = 2**20


def main() -> None:
    template.serve(launch)


def launch(raw: socket.socket, ended: int) -> None:
    """Run one attempt, which ends with the appliance or the template: both descriptors hang up."""
    lines = raw.makefile("rb")
    order = json.loads(lines.readline(LINE_BYTES_MAX) or b"null")
    if order is None:
        return
    pids = {"supervisor": os.getpid()}
    leave = partial(leave_cgroup, order)
    own_namespace, _ = supervisor.split(raw.fileno(), ended, subprocesses=False, after=leave)
    attempt = LaunchedCommand(order)
    pids["launcher"] = os.getpid()
    if own_namespace:
        pids["launcher"] = int(Path("/proc/self").readlink().name)
        show_own_processes()
    _answer(raw, {**pids, "limits": attempt.limits})
    if lines.readline(LINE_BYTES_MAX):
        _answer(raw, attempt.run())


def show_own_processes() -> None:
    """Make /proc list this PID namespace's processes under their numbers in the namespace. Java,
    for example, looks there for child processes."""
    if syscalls.unshare(syscalls.CLONE_NEWNS) and syscalls.mount("/", syscalls.MS_PRIVATE):
        syscalls.mount("/proc", 0, "proc")


class LaunchedCommand:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._pid = self._bytes = 0
        self._tail = b""
        secret = (*order["secrets"], TOKEN)
        environment = order["environment"]
        self._mask = OutputMask(environment[name] for name in secret if name in environment)
        self._reason = ""
        self._wake, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGALRM, self._end)
        self.limits = enter_cgroup(order) or "rlimits"

    def run(self) -> dict[str, Any]:
        order, code = self._order, -signal.SIGTERM.value
        artefacts: list[dict[str, Any]] = []
        signal.setitimer(signal.ITIMER_REAL, order["timeout_seconds"])
        if not self._reason:  # not cancelled before
            output, write = os.pipe()
            self._pid = os.fork()
            if self._pid == 0:
                run_command(order, write, self.limits)
            os.close(write)
            with open(order["output"], "wb", buffering=0, opener=_open_own) as file:
                code = self._follow(file, output)
                artefacts = list_artefacts(Path(order["artefacts"]), order["artefact_bytes_max"])
                self._keep(file, self._mask.end() + warning_of(artefacts, order))
        return {
            "code": code,
            "reason": self._reason,
            "bytes": self._bytes,
            "tail": self._tail.decode(errors="replace"),
            "artefacts": artefacts,
        }

    def _follow(self, file: Any, output: int) -> int:
        """Keep the output until the command has ended, and return its exit code."""
        poll, code, is_open, last = select.poll(), None, True, float("inf")
        codes: dict[int, int | None] = {self._pid: None}
        poll.register(output, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while code is None or (is_open and time.monotonic() < last):
            for descriptor, _ in poll.poll(None if code is None else DRAIN_SECONDS * 1000):
                if descriptor == self._wake:
                    os.read(self._wake, 512)
                elif data := os.read(output, READ_BYTES):
                    self._keep(file, self._mask.feed(data))
                else:
                    poll.unregister(output)
                    is_open = False
            supervisor.reap(codes)
            if code is None and (code := codes[self._pid]) is not None:
                last = time.monotonic() + DRAIN_SECONDS
                signal.setitimer(signal.ITIMER_REAL, 0)
        return code

    def _keep(self, file: Any, data: bytes) -> None:
        room = max(0, self._order["output_bytes_max"] - self._bytes)
        self._bytes += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        with contextlib.suppress(OSError):  # the disk is full
            file.write(data[:room])

    def _end(self, number: int, _frame: Any) -> None:
        """Handle SIGTERM, and SIGALRM at the time limit and again after the grace period."""
        if not self._reason:
            self._reason = "cancelled" if number == signal.SIGTERM else "timed out"
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS, REPEAT_SECONDS)
            self._kill(signal.SIGTERM)
        elif number == signal.SIGALRM:
            self._kill(signal.SIGKILL)

    def _kill(self, number: int) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)


def run_command(order: dict[str, Any], write: int, limits: str) -> None:
    """Become the command. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        template.reset_signals()
        os.setsid()
        syscalls.die_with_parent()
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.closerange(3, 64)
        if limits == "rlimits" and order["memory_mb"]:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (order["memory_mb"] * MIB,) * 2)
        if order["container"]:
            from appliance.jobs import engine  # only for containers: importing takes long

            os._exit(engine.follow(**order["container"]))
        template.become(order["command"], order["environment"], order["folder"])
    except BaseException as error:
        os.write(2, f"not started: {getattr(error, 'strerror', None) or error}\n".encode())
    os._exit(NOT_STARTED)


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def list_artefacts(folder: Path, bytes_max: int) -> list[dict[str, Any]]:
    """List the regular files in the folder, by name.

    A file is deleted if larger than the rest of `bytes_max`, or after ARTEFACTS_MAX kept files. The
    list contains up to ARTEFACTS_MAX deleted files too, as `dropped`.
    """
    listed: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_file():
                continue
            size, name = path.stat().st_size, str(path.relative_to(folder))
            if size > bytes_max or len(listed) == ARTEFACTS_MAX:
                path.unlink()
                dropped.append({"name": name, "bytes": size, "sha256": "", "dropped": True})
                continue
            bytes_max -= size
            import hashlib  # takes longer than a short job's rest, and most leave no file

            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            listed.append({"name": name, "bytes": size, "sha256": digest})
    return listed + dropped[:ARTEFACTS_MAX]


def warning_of(artefacts: list[dict[str, Any]], order: dict[str, Any]) -> bytes:
    """Return a line for the output about files that were deleted; nothing if there are none."""
    names = [file["name"] for file in artefacts if file.get("dropped")]
    if not names:
        return b""
    limits = f"{order['artefact_bytes_max']:,} bytes (artefact_bytes_max), {ARTEFACTS_MAX} files"
    return f"agentlip: artefacts not kept: {', '.join(names)}; limits: {limits}\n".encode()


def enter_cgroup(order: dict[str, Any]) -> str:
    """Enter the order's cgroup and return `cgroup` if its limits apply; "" otherwise."""
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
        return ""
    return "cgroup"


def leave_cgroup(order: dict[str, Any], _code: int | None) -> None:
    """Remove the cgroup, in which no process is left."""
    if order["cgroup"]:
        with contextlib.suppress(OSError):
            Path(order["cgroup"]).rmdir()


def _answer(raw: socket.socket, answer: dict[str, Any]) -> None:
    raw.sendall(json.dumps(answer).encode() + b"\n")

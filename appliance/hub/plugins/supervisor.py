"""The process between the appliance and a plugin: it ends the plugin, whatever happens.

    appliance ── socket ── supervisor ── fork ──▶ plugin ──▶ what that starts, if it may

It runs none of the plugin's code and reads nothing of what is said on the socket. When the
appliance closes its end, or is killed, or the plugin's process ends, it kills all that descends
from it (processes whose parent ended are given to it, sessions of their own do not hide them)
and ends. When it is killed itself, the kernel kills the plugin (PR_SET_PDEATHSIG, which the
plugin's filter of system calls keeps it from taking back); where the kernel grants a PID
namespace, everything in it goes the same moment. Standard library only.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from appliance.hub.plugins import syscalls

PAUSE_SECONDS = 0.005  # between two rounds of killing what is still there


def split(raw: socket.socket, order: dict[str, Any]) -> tuple[bool, int]:
    """Returns in the plugin's process: whether it has a PID namespace of its own, and a
    descriptor that hangs up when the supervisor ends. In the supervisor it never returns."""
    with contextlib.suppress(OSError):
        os.setsid()  # a leader already, if the parent could ask for it
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    own_namespace = _new_namespace(bool(order["subprocesses"]))
    watched, held = os.pipe()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        for descriptor in (held, wake, woken):
            os.close(descriptor)
        os.setsid()
        return own_namespace, watched
    os.close(watched)
    try:
        _watch(raw, child, wake)
    finally:
        _end_all(child, wake)
        os._exit(0)


def is_gone(watched: int) -> bool:
    """Whether the supervisor has ended, for its child."""
    poll = select.poll()
    poll.register(watched, 0)
    return bool(poll.poll(0))


def _watch(raw: socket.socket, child: int, wake: int) -> None:
    """Until the appliance hangs up or the plugin ends."""
    poll = select.poll()
    poll.register(raw.fileno(), getattr(select, "POLLRDHUP", 0))
    poll.register(wake, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == raw.fileno():
                return
            os.read(wake, 512)
            if _has_ended(child):
                return


def _has_ended(child: int) -> bool:
    """Reaps whatever ended, as who was given orphans has to."""
    try:
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) not in (0, child):
            continue
    except ChildProcessError:
        return True
    return pid == child


def _end_all(child: int, wake: int) -> None:
    """Stops all there are before it kills them: who is stopped starts no more. Then again, for
    what began meanwhile, until nothing is left."""
    while True:
        seen: set[int] = set()
        while new := _descendants(child) - seen:
            _signal(new, signal.SIGSTOP)
            seen |= new
        _signal(seen, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        if select.select([wake], [], [], PAUSE_SECONDS)[0]:  # something ended
            os.read(wake, 512)


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(child: int) -> set[int]:
    """All that are below this process, as /proc tells. Who is not dumpable may be hidden there
    (`hidepid`), but not in the list of this process's own children."""
    own = os.getpid()
    try:
        listed = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii")
        found = set(map(int, listed.split()))
    except OSError:  # not Linux, or a kernel without that list
        found = {child} if _is_ours(child) else set()
    parents = {}
    with contextlib.suppress(OSError):
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid, stat = int(path.name), (path / "stat").read_bytes()
                parents[pid] = int(stat.rpartition(b")")[2].split()[1])
    new = {own} | found
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _is_ours(child: int) -> bool:
    """Not reaped yet, so that the number is still its own."""
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _new_namespace(subprocesses: bool) -> bool:
    """A PID namespace for the next child. Root has it for the asking; others need a user
    namespace with it, which only a plugin that may start processes is worth."""
    if sys.platform != "linux":
        return False
    if os.geteuid() == 0:
        return syscalls.unshare(syscalls.CLONE_NEWPID)
    if not subprocesses:
        return False
    attempt = os.fork()  # one that succeeds by half can't be undone
    if attempt == 0:
        os._exit(0 if _as_own_user() else 1)
    return os.waitpid(attempt, 0)[1] == 0 and _as_own_user()


def _as_own_user() -> bool:
    """The same user and group inside as outside."""
    uid, gid = os.geteuid(), os.getegid()
    if not syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID):
        return False
    try:
        for name, text in (
            ("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")
        ):  # fmt: skip
            Path("/proc/self", name).write_text(text, encoding="ascii")
    except OSError:
        return False
    return True

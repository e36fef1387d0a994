"""The process between a parent and the child that works for it, which always ends the child.

    parent ── socket ── supervisor ── fork ──▶ child ──▶ its subprocesses, if allowed

It runs no code of the child and reads nothing from the socket. When the parent closes its end or is
killed, or when the child ends, it kills all its descendants and exits. As subreaper it also finds
orphans and processes in other sessions. When the supervisor itself is killed, the kernel kills a
child that has set PR_SET_PDEATHSIG (a filter of system calls can keep it from clearing that) and
everything in the PID namespace, if there is one. Standard library only.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from pathlib import Path

from appliance.child import syscalls

ROUND_SECONDS = 0.005  # between two rounds of killing descendants


def split(raw: socket.socket, *, subprocesses: bool) -> tuple[bool, int]:
    """Returns in the child: whether it has its own PID namespace, and a descriptor that hangs up
    when the supervisor ends. Never returns in the supervisor. `raw`: the socket to the parent."""
    with contextlib.suppress(OSError):
        os.setsid()  # already a leader if the parent started it as one
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    own_namespace = _new_namespace(subprocesses)
    watched, kept_open = os.pipe()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        for descriptor in (kept_open, wake, woken):
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
    """Whether the supervisor has ended. For the child."""
    return bool(select.select([watched], [], [], 0)[0])


def _watch(raw: socket.socket, child: int, wake: int) -> None:
    """Until the parent hangs up or the child ends."""
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
    """Reap ended processes, orphans included; returns whether `child` is among them."""
    try:
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) not in (0, child):
            continue
    except ChildProcessError:
        return True
    return pid == child


def _end_all(child: int, wake: int) -> None:
    """Stop all descendants before killing them, so that they start no new ones. Repeat until none
    is left."""
    while True:
        seen: set[int] = set()
        while new := _descendants(child) - seen:
            _send_signal(new, signal.SIGSTOP)
            seen |= new
        _send_signal(seen, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        if select.select([wake], [], [], ROUND_SECONDS)[0]:  # something ended
            os.read(wake, 512)


def _send_signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(child: int) -> set[int]:
    """All descendants of this process. Processes that aren't dumpable may be hidden in /proc
    (`hidepid`), but not in the list of this process's own children."""
    own = os.getpid()
    try:
        listed = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii")
        pids = set(map(int, listed.split()))
    except OSError:  # not Linux, or a kernel without that list
        pids = {child} if _is_ours(child) else set()
    parents = {}
    with contextlib.suppress(OSError):
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid, stat = int(path.name), (path / "stat").read_bytes()
                parents[pid] = int(stat.rpartition(b")")[2].split()[1])
    new = {own} | pids
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - pids
        pids |= new
    return pids


def _is_ours(child: int) -> bool:
    """Whether the child is not reaped yet, so its pid can't be reused."""
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _new_namespace(subprocesses: bool) -> bool:
    """Create a PID namespace for the next child. Root can; other users also need a user namespace,
    which is created only for children with subprocesses."""
    if sys.platform != "linux":
        return False
    if os.geteuid() == 0:
        return syscalls.unshare(syscalls.CLONE_NEWPID)
    if not subprocesses:
        return False
    attempt = os.fork()  # try in a child: a partial success can't be undone
    if attempt == 0:
        os._exit(0 if _as_own_user() else 1)
    return os.waitpid(attempt, 0)[1] == 0 and _as_own_user()


def _as_own_user() -> bool:
    """Create the namespaces with the same user and group inside as outside."""
    uid, gid = os.geteuid(), os.getegid()
    if not syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID):
        return False
    maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
    try:
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")
    except OSError:
        return False
    return True

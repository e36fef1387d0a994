"""Ends a child for certain: a process between a parent and its working child.

    parent ── socket ── supervisor ── fork ──▶ child ──▶ its subprocesses, if allowed

The supervisor runs none of the child's code and reads nothing from the socket. When the parent
closes the socket or is killed, or when the child ends, the supervisor kills all descendants and
exits. As subreaper, the supervisor also finds orphans and processes in other sessions. When the
supervisor itself is killed, the kernel kills the child, which begins with PR_SET_PDEATHSIG (a
system call filter can keep the child from clearing that), and everything in the PID namespace, if
there is one. Standard library only.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from appliance import syscalls

ROUND_SECONDS = 0.005  # between two rounds that kill descendants


def split(
    *watching: int,
    subprocesses: bool | None,
    graceful: bool = False,
    after: Callable[[int | None], None] = lambda _: None,
    passed_on: Sequence[int] = (),
) -> tuple[bool, int]:
    """Fork a child below a supervisor. In the child, return whether it has a PID namespace, and
    a descriptor that hangs up when the supervisor ends. Never returns in the supervisor, which
    ends when one of the descriptors `watching` hangs up; it calls `after` with the child's exit
    code when no descendant is left. `subprocesses`: whether the child may have some; None:
    without a PID namespace.

    `graceful`: when the parent shuts its socket down for writing, the child's process group gets
    SIGTERM, and has the time until the parent closes the socket.

    `passed_on`: signals that the supervisor passes on to the child; the caller may block them until
    then. Both stay in the session, where a terminal sends SIGINT to both.
    """
    if not passed_on:
        with contextlib.suppress(OSError):
            os.setsid()  # already a leader if the parent made it one
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
        # First: a child that is stopped before would outlive a supervisor that is killed.
        syscalls.die_with_parent()
        for descriptor in (kept_open, wake, woken):
            os.close(descriptor)
        if is_gone(watched):
            os._exit(0)  # ended before the signal was set
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        if not passed_on:
            os.setsid()
        return own_namespace, watched
    os.close(watched)
    codes: dict[int, int | None] = {child: None}

    def pass_on(number: int, _: object) -> None:
        if codes[child] is None and (number != signal.SIGINT or not os.isatty(0)):
            _send_signal({child}, number)

    for number in passed_on:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    try:
        _watch(watching, getattr(select, "POLLRDHUP", 0), codes, wake)
        if graceful and codes[child] is None:
            _send_signal({-child}, signal.SIGTERM)
            _watch(watching, 0, codes, wake)
    finally:
        if own_namespace:  # with the first process the kernel kills the whole namespace
            _send_signal({child}, signal.SIGKILL)
        _end_all(codes, wake)
        after(codes[child])
        os._exit(0)


def is_gone(watched: int) -> bool:
    """Return whether the supervisor has ended. For the child."""
    return bool(select.select([watched], [], [], 0)[0])


def reap(codes: dict[int, int | None]) -> bool:
    """Reap all processes that have ended, orphans included, and note the exit codes for
    processes in `codes`; return whether any process is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in codes:
                codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return False
    return True


def _watch(watching: Sequence[int], events: int, codes: dict[int, int | None], wake: int) -> None:
    """Wait until a descriptor hangs up or has one of the events, or the child ends."""
    poll = select.poll()
    for descriptor in watching:
        poll.register(descriptor, events)
    poll.register(wake, select.POLLIN)
    while None in codes.values():
        for descriptor, _ in poll.poll():
            if descriptor != wake:
                return
            os.read(wake, 512)
            reap(codes)


def _end_all(codes: dict[int, int | None], wake: int) -> None:
    """Stop all descendants before the kill, so that no new ones start. Repeat until none is left:
    all are children of this subreaper or of its children."""
    while reap(codes):
        seen: set[int] = set()
        while new := _descendants(codes) - seen:
            _send_signal(new, signal.SIGSTOP)
            seen |= new
        _send_signal(seen, signal.SIGKILL)
        if select.select([wake], [], [], ROUND_SECONDS)[0]:  # something ended
            os.read(wake, 512)


def _send_signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(codes: dict[int, int | None]) -> set[int]:
    """Return this process's descendants. Undumpable processes may be hidden in /proc (`hidepid`),
    but not in this process's list of children."""
    own = os.getpid()
    try:
        listed = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii")
        pids = set(map(int, listed.split()))
    except OSError:  # not Linux, or a kernel without that list
        pids = {child for child, code in codes.items() if code is None}
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


def _new_namespace(subprocesses: bool | None) -> bool:
    """Create a PID namespace for the next child. Root can; other users also need a user namespace,
    which is created only for children with subprocesses."""
    if subprocesses is None or sys.platform != "linux":
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

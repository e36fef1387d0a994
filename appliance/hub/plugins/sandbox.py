"""Shuts this process in before a plugin's code is loaded. Standard library only.

What there is depends on the machine; `enter` does what it can and reports what it got:

    another user   as root: nothing of the workspace can be written, nor its secrets read
    Landlock       no file can be written; Python, the system's libraries and what the settings
                   name can be read, nothing else
    seccomp        only the system calls of a list: no other process signalled or traced, no
                   namespace, no System V memory, no clearing of the signal that ends it;
                   sockets and processes where they are allowed
    limits         memory, processor time, sizes of files, open files, no core, children

The report is what was tried and found, not what was wished for: at the end the process tries
each of these itself. `proof.py` asks the kernel about it, from outside.
"""

import contextlib
import itertools
import os
import resource
import secrets
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any

from appliance.hub.plugins import seccomp, supervisor, syscalls

SIBLINGS_MAX = 10_000
OPEN_FILES_MAX = 64
LANDLOCK_MIN = 3  # alone; older ones don't keep a process from truncating a file by its name
SYSTEM_FOLDERS = (
    "/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr", "/etc/alternatives",
    "/etc/ca-certificates", "/etc/pki", "/etc/ssl", "/sys/devices/system/cpu",
)  # fmt: skip
SYSTEM_FILES = (
    "/dev/random", "/dev/urandom", "/dev/zero", "/etc/gai.conf", "/etc/group", "/etc/host.conf",
    "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf",
    "/etc/passwd", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/timezone",
)  # fmt: skip


def enter(order: dict[str, Any], watched: int, own_namespace: bool) -> dict[str, Any]:
    """Shuts in, then says how tightly: {"user", "landlock", "write", "read", "network", …}.

    order: data_dir, readable, uid, gid, network, subprocesses, processes_max, memory_bytes,
    cpu_seconds, file_bytes, owner (the appliance's user); `watched` hangs up with the supervisor
    """
    os.chdir("/")
    os.umask(0o077)
    user = become(order["uid"], order["gid"])
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if syscalls.has_capabilities():
            syscalls.drop_capabilities()
        # Last of these, for the kernel forgets it with a change of user or of capabilities.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if supervisor.is_gone(watched):
        os._exit(0)  # it ended before we could ask to be told
    os.close(watched)
    landlock = confine(order["data_dir"], order["readable"], network=order["network"])
    limit(order)
    filtered = seccomp.enforce(network=order["network"], subprocesses=order["subprocesses"])
    foreign = os.geteuid() != order["owner"]
    shut = foreign or landlock >= (1 if filtered else LANDLOCK_MIN)
    return {
        "user": user,
        "landlock": landlock,
        "seccomp": filtered,
        "pid_namespace": own_namespace,
        **_tried(order["data_dir"], shut=shut, own_namespace=own_namespace),
    }


def hide() -> None:
    """Once the appliance has looked at it: where processes are hidden from others (`hidepid`),
    one that is not dumpable is hidden from it too."""
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _tried(data_dir: str, *, shut: bool, own_namespace: bool) -> dict[str, str]:
    """What this process may do, by trying it."""
    return {
        "write": _write(data_dir, trusted=shut),
        "read": "open" if _can_read(data_dir) else "denied",
        "files": _outcome(lambda: os.listdir(os.path.dirname(data_dir))),
        "network": _outcome(lambda: socket.socket(socket.AF_INET).close()),
        "subprocesses": _outcome(_fork),
        "processes": _outcome(lambda: os.kill(-1, 0)),
        "namespaces": _flag(sys.platform == "linux" and syscalls.unshare(0)),
        "shared_memory": _flag(sys.platform != "linux" or syscalls.makes_shared_memory()),
        "survival": "denied" if own_namespace or not _can_outlive() else "open",
    }


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError:
        return "denied"
    return "open"


def _flag(is_open: bool) -> str:
    return "open" if is_open else "denied"


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _can_outlive() -> bool:
    """Whether it could take back the signal that it gets when its supervisor ends."""
    if sys.platform != "linux":
        return True
    return syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def become(uid: int, gid: int) -> int | None:
    """As root: another user, if that one can read this Python's library; None otherwise."""
    if os.geteuid() != 0 or uid == 0:
        return None
    try:
        os.setegid(gid)
        os.seteuid(uid)
        os.listdir(os.path.dirname(os.__file__))
        with open(os.__file__, "rb"):
            pass
    except OSError:
        return None
    finally:
        os.seteuid(0)
        os.setegid(0)
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return None
    return uid


def confine(data_dir: str, more: Sequence[str], *, network: bool) -> int:
    """Landlock: the version that holds now, 0 where there is none."""
    version = syscalls.landlock_version()
    if version == 0:
        return 0
    try:
        ruleset = syscalls.landlock_ruleset(version, network=network)
        try:
            for path, is_folder in readable(data_dir, [*_libraries(), *more]):
                syscalls.landlock_allow(ruleset, path, syscalls.READ_RIGHTS, is_folder)
            syscalls.landlock_allow(ruleset, "/dev/null", syscalls.READ_WRITE_FILE, False)
            syscalls.landlock_enforce(ruleset)
        finally:
            os.close(ruleset)
    except OSError:
        return 0
    return version


def _libraries() -> list[str]:
    """Python's own, the system's, and what the kernel says of this process."""
    own = [os.path.join("/proc", name) for name in _own_pids()]
    return [*SYSTEM_FOLDERS, *SYSTEM_FILES, sys.prefix, sys.base_prefix, sys.base_exec_prefix, *own]


def _own_pids() -> list[str]:
    with contextlib.suppress(OSError):
        return [os.readlink("/proc/self")]
    return []


def readable(data_dir: str, roots: Sequence[str]) -> list[tuple[str, bool]]:
    """What is there now of `roots`, without `data_dir`: (path, is a folder)."""
    found = []
    for root in map(os.path.realpath, roots):
        if root == "/" or _is_below(root, data_dir):
            continue  # all there is, or what nobody may read
        if _is_below(data_dir, root):
            found += _beside(data_dir, root)
            continue
        with contextlib.suppress(OSError):
            found.append((root, stat.S_ISDIR(os.stat(root).st_mode)))
    return found


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _beside(data_dir: str, root: str) -> list[tuple[str, bool]]:
    """Landlock knows only what may be read, so along the way from `root` down to `data_dir` all
    neighbours are named one by one."""
    found = []
    here = root
    for name in os.path.relpath(data_dir, root).split("/"):
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(here) as entries:
            names = [entry.name for entry in itertools.islice(entries, SIBLINGS_MAX)]
        for other in names:
            path = os.path.join(here, other)
            if other == name:
                continue
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                # A link would stand for what it points to, which may be the very folder.
                if not stat.S_ISLNK(mode):
                    found.append((path, stat.S_ISDIR(mode)))
        here = os.path.join(here, name)
    return found


def limit(order: dict[str, Any]) -> None:
    wanted = {
        "CORE": 0,
        "AS": order["memory_bytes"],
        "CPU": order["cpu_seconds"],
        "FSIZE": order["file_bytes"],
        "NOFILE": OPEN_FILES_MAX,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NPROC": _tasks() + order["processes_max"] if order["subprocesses"] else 0,
    }
    for name, value in wanted.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is None:  # macOS knows fewer, and some of them by name only
            continue
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (value, value))


def _tasks() -> int:
    """Threads that this user runs now: the limit counts them all."""
    count = 0
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _write(data_dir: str, *, trusted: bool) -> str:
    """`denied` if trying fails and it is known why; anything else is `open`."""
    if _can_create(data_dir) or _can_open(os.path.join(data_dir, "db.sqlite3"), os.O_WRONLY):
        return "open"
    return "denied" if trusted else "open"


def _can_create(data_dir: str) -> bool:
    path = os.path.join(data_dir, f".plugin-{secrets.token_hex(8)}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.unlink(path)
    return True


def _can_read(data_dir: str) -> bool:
    """The appliance's own files, or one that stands for what only root may read."""
    own = [os.path.join(data_dir, name) for name in ("token", "db.sqlite3")]
    return any(_can_open(path, os.O_RDONLY) for path in (*own, "/etc/shadow"))


def _can_open(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True

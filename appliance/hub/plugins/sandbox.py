"""Isolates this process before a plugin's code is loaded.

The means depend on the machine; `enter` uses the available ones and reports the result:

    another user   if started as root: can't write to the workspace or read its secrets
    Landlock       can't write files; can read only Python, the system's libraries and the paths
                   in the settings
    seccomp        only listed system calls: no signals to or tracing of other processes, no
                   namespaces, no System V memory, no clearing of the parent-death signal; sockets
                   and subprocesses only if allowed
    limits         memory, CPU time, file sizes, open files, core dumps, processes

The report contains tested facts: the process finally tries each forbidden action itself, and
`proof.py` compares the report with the kernel's view from outside.
"""

import contextlib
import itertools
import os
import secrets
import signal
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any

from appliance import syscalls
from appliance.child import supervisor
from appliance.child.limits import limit
from appliance.hub.plugins import seccomp

SIBLINGS_MAX = 10_000
LANDLOCK_MIN = 3  # sufficient without other means; older versions don't prevent truncating by name
SYSTEM_FOLDERS = (
    "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/sbin", "/usr", "/etc/alternatives",
    "/etc/ca-certificates", "/etc/pki", "/etc/ssl", "/sys/devices/system/cpu",
)  # fmt: skip
SYSTEM_FILES = (
    "/dev/random", "/dev/urandom", "/dev/zero", "/etc/gai.conf", "/etc/group", "/etc/host.conf",
    "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf",
    "/etc/passwd", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/timezone",
)  # fmt: skip


def enter(order: dict[str, Any], watched: int, own_namespace: bool) -> dict[str, Any]:
    """Isolate this process and report how: {"user", "landlock", "write", "read", "network", …}.

    order: data_dir, readable, uid, gid, network, subprocesses, processes_max, memory_bytes,
    cpu_seconds, file_bytes, owner (the appliance's user). `watched` hangs up with the supervisor.
    """
    os.chdir("/")
    os.umask(0o077)
    user = become(order["uid"], order["gid"])
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if syscalls.has_capabilities():
            syscalls.drop_capabilities()
        # Last: the kernel clears the setting when user or capabilities change.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if supervisor.is_gone(watched):
        os._exit(0)  # ended before the signal was set
    os.close(watched)
    landlock = confine(order["data_dir"], order["readable"], network=order["network"])
    limit(
        memory_bytes=order["memory_bytes"],
        cpu_seconds=order["cpu_seconds"],
        file_bytes=order["file_bytes"],
        processes_max=order["processes_max"] if order["subprocesses"] else None,
    )
    filtered = seccomp.enforce(network=order["network"], subprocesses=order["subprocesses"])
    foreign = os.geteuid() != order["owner"]
    shut = foreign or landlock >= (1 if filtered else LANDLOCK_MIN)
    return {
        "user": user,
        "landlock": landlock,
        "seccomp": filtered,
        "pid_namespace": own_namespace,
        **_probe(order["data_dir"], shut=shut, own_namespace=own_namespace),
    }


def hide() -> None:
    """Make the process not dumpable. Call only after the appliance's inspection: with `hidepid`,
    the process is then invisible."""
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _probe(data_dir: str, *, shut: bool, own_namespace: bool) -> dict[str, str]:
    """Return this process's abilities, found by attempts."""
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
    """Return whether the process can clear the signal for its supervisor's end."""
    if sys.platform != "linux":
        return True
    return syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def become(uid: int, gid: int) -> int | None:
    """Become, as root, another user if that user can read this Python's library; else None."""
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
    """Apply Landlock; returns the version in force, 0 without Landlock."""
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
    """Return the paths that belong to Python, the system, and this process in /proc."""
    own = [os.path.join("/proc", name) for name in _own_pids()]
    return [*SYSTEM_FOLDERS, *SYSTEM_FILES, sys.prefix, sys.base_prefix, sys.base_exec_prefix, *own]


def _own_pids() -> list[str]:
    with contextlib.suppress(OSError):
        return [os.readlink("/proc/self")]
    return []


def readable(data_dir: str, roots: Sequence[str]) -> list[tuple[str, bool]]:
    """Return existing paths in `roots` without `data_dir`: (path, is a folder)."""
    paths = []
    for root in map(os.path.realpath, roots):
        if root == "/" or _is_below(root, data_dir):
            continue  # everything, or inside the data directory
        if _is_below(data_dir, root):
            paths += _beside(data_dir, root)
            continue
        with contextlib.suppress(OSError):
            paths.append((root, stat.S_ISDIR(os.stat(root).st_mode)))
    return paths


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _beside(data_dir: str, root: str) -> list[tuple[str, bool]]:
    """Return all paths below `root` except `data_dir`. Landlock has no exceptions, so each
    folder's siblings on the way to `data_dir` are listed one by one."""
    paths = []
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
                # A link stands for its target, which may be `data_dir`.
                if not stat.S_ISLNK(mode):
                    paths.append((path, stat.S_ISDIR(mode)))
        here = os.path.join(here, name)
    return paths


def _write(data_dir: str, *, trusted: bool) -> str:
    """Return `denied` if writing fails because of the isolation; otherwise `open`."""
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
    """Return whether the appliance's files, or a file that only root can read, are readable."""
    own = [os.path.join(data_dir, name) for name in ("token", "db.sqlite3")]
    return any(_can_open(path, os.O_RDONLY) for path in (*own, "/etc/shadow"))


def _can_open(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True

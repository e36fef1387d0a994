"""Shuts this process in before a plugin's code is loaded. Standard library only.

What there is depends on the machine; `enter` does what it can and reports what it got:

    another user   as root: nothing of the workspace can be written, nor its secrets read
    Landlock       no file can be written, nothing in `.agentlip/` read
    seccomp        no file's mode, owner, time or attribute changed, no other process signalled,
                   limited or slowed down; without `network` no socket made
    limits         memory, processor time, sizes of files, open files, no core, no children

The report is what was tried and found, not what was wished for: at the end the process tries
to write into `.agentlip/` itself.
"""

import contextlib
import itertools
import os
import resource
import secrets
import signal
import stat
import sys
from typing import Any

from appliance.hub.plugins import seccomp, syscalls

SIBLINGS_MAX = 10_000
OPEN_FILES_MAX = 64
LANDLOCK_MIN = 3  # alone; older ones don't keep a process from truncating a file by its name


def enter(order: dict[str, Any]) -> dict[str, Any]:
    """Shuts in, then says how tightly: {"user", "landlock", "write", "read", "network", …}.

    order: data_dir, uid, gid, parent, network, subprocesses, memory_bytes, cpu_seconds,
    file_bytes, owner (the appliance's user)
    """
    with contextlib.suppress(OSError):
        os.setsid()  # a leader already, if the parent could ask for it
    os.chdir("/")
    os.umask(0o077)
    user = become(order["uid"], order["gid"])
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten by a change of user
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if os.getppid() != order["parent"]:
        os._exit(0)  # it ended before we could ask to be told
    if os.geteuid() == 0:
        syscalls.drop_capabilities()
    landlock = confine(order["data_dir"], network=order["network"])
    limit(order)
    filtered = seccomp.enforce(network=order["network"], subprocesses=order["subprocesses"])
    foreign = os.geteuid() != order["owner"]
    limited = filtered or os.geteuid() != 0  # root's processes are not counted
    shut = foreign or landlock >= (1 if filtered else LANDLOCK_MIN)
    return {
        "user": user,
        "landlock": landlock,
        "seccomp": filtered,
        "write": _write(order["data_dir"], trusted=shut),
        "read": "open" if _can_read(order["data_dir"]) else "denied",
        "network": "denied" if filtered and not order["network"] else "open",
        "subprocesses": "denied" if limited and not order["subprocesses"] else "open",
    }


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


def confine(data_dir: str, *, network: bool) -> int:
    """Landlock: the version that holds now, 0 where there is none."""
    version = syscalls.landlock_version()
    if version == 0:
        return 0
    try:
        ruleset = syscalls.landlock_ruleset(version, network=network)
        try:
            for path, is_folder in readable(data_dir):
                syscalls.landlock_allow(ruleset, path, syscalls.READ_RIGHTS, is_folder)
            syscalls.landlock_allow(ruleset, "/dev/null", syscalls.READ_WRITE_FILE, False)
            syscalls.landlock_enforce(ruleset)
        finally:
            os.close(ruleset)
    except OSError:
        return 0
    return version


def readable(data_dir: str) -> list[tuple[str, bool]]:
    """Everything that is there now but `data_dir`: (path, is a folder). Landlock knows only
    what may be read, so along the way down all neighbours are named one by one."""
    found = []
    here = "/"
    for name in data_dir.strip("/").split("/"):
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
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: order["memory_bytes"],
        resource.RLIMIT_CPU: order["cpu_seconds"],
        resource.RLIMIT_FSIZE: order["file_bytes"],
        resource.RLIMIT_NOFILE: OPEN_FILES_MAX,
    }
    if not order["subprocesses"] and hasattr(resource, "RLIMIT_NPROC"):
        wanted[resource.RLIMIT_NPROC] = 0
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS knows some of them by name only
            resource.setrlimit(which, (value, value))


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
    return any(
        _can_open(os.path.join(data_dir, name), os.O_RDONLY) for name in ("token", "db.sqlite3")
    )


def _can_open(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True

"""Linux system calls that Python doesn't wrap. Standard library only.

Landlock follows the kernel's userspace-api/landlock, with equal system call numbers on every
architecture.
"""

import ctypes
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
MS_PRIVATE = 0x44000  # with all mounts below
IPC_PRIVATE, IPC_RMID = 0, 0
M_ARENA_MAX = -8
SQLITE_CONFIG_MULTITHREAD = 2
AT_FDCWD, STATX_BTIME, STATX_BTIME_OFFSET, STATX_BYTES = -100, 0x800, 80, 256

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
READ_WRITE_FILE = READ_FILE | WRITE_FILE
FILE_RIGHTS = EXECUTE | READ_FILE | WRITE_FILE
# By version: all version 1 rights; then moving between folders; then truncating.
FS_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
NET_BIND_AND_CONNECT_TCP = 0b11  # since version 4
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # since version 6
CAPABILITIES = 64
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class RulesetAttributes(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


class CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def prctl(option: int, value: int) -> bool:
    return bool(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)


def die_with_parent() -> None:
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def use_one_arena() -> None:
    """Let all threads share one heap, where glibc is used; each thread's own would hold up to
    0.3 MB. Call this before a thread starts."""
    with suppress(AttributeError):
        _libc.mallopt(M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Return the heap's free memory to the system, where glibc is used."""
    with suppress(AttributeError):
        _libc.malloc_trim(ctypes.c_size_t(0))


def omit_sqlite_locks() -> None:
    """Let SQLite omit the lock around each call on a connection, where the library is shared.
    Call this before the first connection is opened.

    No connection is used by two threads at once: Python checks this, and a connection without
    that check has a lock, or a single owner. See sqlite.org/threadsafe.html, "Multi-thread".
    """
    with suppress(OSError):
        library = ctypes.CDLL("libsqlite3.so.0", mode=os.RTLD_NOLOAD)
        library.sqlite3_shutdown()  # importing sqlite3 initialized the library
        library.sqlite3_config(SQLITE_CONFIG_MULTITHREAD)
        library.sqlite3_initialize()


def birth_ns(path: Path) -> int:
    """Return when a file was created, which distinguishes files with a reused inode number; 0 if
    the file system or the C library does not know."""
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    with suppress(AttributeError):
        _libc.statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, buffer)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, STATX_BTIME_OFFSET)
    return int(seconds * 10**9 + nanoseconds)


def unshare(flags: int) -> bool:
    return bool(_libc.unshare(flags) == 0)


def mount(path: str, flags: int, kind: str = "") -> bool:
    """Mount a file system of that kind, or change the mount at the path."""
    return bool(_libc.mount(kind.encode(), path.encode(), kind.encode(), flags, None) == 0)


def makes_shared_memory() -> bool:
    """Return whether System V shared memory, which outlives processes, can be created. Leaves
    none."""
    segment = _libc.shmget(IPC_PRIVATE, ctypes.c_size_t(1), 0o600)
    if segment >= 0:
        _libc.shmctl(segment, IPC_RMID, None)
    return bool(segment >= 0)


def has_capabilities() -> bool:
    try:
        lines = Path("/proc/self/status").read_text(errors="replace").splitlines()
        return any(int(line.split()[1], 16) for line in lines if line.startswith("CapPrm"))
    except OSError:
        return os.geteuid() == 0


def drop_capabilities() -> None:
    """Drop all capabilities for good. Capabilities that can't be dropped don't exist."""
    for capability in range(CAPABILITIES):
        prctl(PR_CAPBSET_DROP, capability)
    header = CapabilityHeader(CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _libc.capset(ctypes.byref(header), none)


def landlock_version() -> int:
    """Return Landlock's version; 0 if the kernel, its configuration or an outer filter lacks it."""
    if not sys.platform.startswith("linux"):
        return 0
    version = _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(0, int(version))


def landlock_ruleset(version: int, *, network: bool) -> int:
    """Return the descriptor for a ruleset that denies everything this version knows, except by a
    rule."""
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = RulesetAttributes(
        FS_RIGHTS[min(version, max(FS_RIGHTS))],
        0 if network else NET_BIND_AND_CONNECT_TCP,
        SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS,
    )
    return _check(_libc.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0))


def landlock_allow(ruleset: int, path: str, rights: int, is_folder: bool) -> None:
    """Allow a path. Missing and inaccessible paths are skipped, and stay denied."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = rights if is_folder else rights & FILE_RIGHTS
        rule = PathBeneath(allowed, descriptor)
        _check(_libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


def landlock_enforce(ruleset: int) -> None:
    _check(_libc.syscall(RESTRICT_SELF, ruleset, 0))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

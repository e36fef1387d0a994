"""The system calls that a plugin may make; all others fail with EPERM.

EPERM instead of killing the process: libraries probe for calls and continue after a refusal, and
the plugin's author gets a PermissionError with a line number. clone3 fails with ENOSYS, because its
flags are in memory, invisible for a filter; libc then uses clone.

libseccomp, called through `pyseccomp`, knows the numbers of the calls on every architecture.
Without libseccomp, or with another C library than glibc, no filter is installed or claimed.
"""

import contextlib
import errno
import platform
import socket
import sys
from typing import Any

pyseccomp: Any
try:
    import pyseccomp  # imported before the filter: finding the library starts a process
except (ImportError, OSError, RuntimeError, AttributeError):
    pyseccomp = None  # not Linux, or no libseccomp

FILES = (
    "access", "chdir", "close", "close_range", "dup", "dup2", "dup3", "faccessat", "faccessat2",
    "fadvise64", "fchdir", "flock", "fstat", "fstatfs", "getcwd", "getdents", "getdents64",
    "lseek", "lstat", "newfstatat", "open", "openat", "pipe", "pipe2", "pread64", "preadv",
    "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat",
    "readv", "stat", "statfs", "statx", "umask", "write", "writev",
)  # fmt: skip
MEMORY = (
    "brk", "madvise", "membarrier", "mincore", "mmap", "mprotect", "mremap", "msync", "munmap",
)  # fmt: skip
ITSELF = (
    "arch_prctl", "capget", "exit", "exit_group", "getcpu", "getegid", "geteuid", "getgid",
    "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom",
    "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid",
    "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield", "set_robust_list",
    "set_tid_address", "sigaltstack", "sysinfo", "times", "uname",
)  # fmt: skip
WAITING = (
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1",
    "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "futex",
    "futex_waitv", "getitimer", "gettimeofday", "nanosleep", "pause", "poll", "ppoll", "pselect6",
    "select", "setitimer", "time", "timerfd_create", "timerfd_gettime", "timerfd_settime",
)  # fmt: skip
# For existing sockets: the message socket, and socket pairs.
SOCKETS = (
    "getpeername", "getsockname", "getsockopt", "recvfrom", "recvmsg", "sendmsg", "sendto",
    "shutdown",
)  # fmt: skip
NETWORK = (
    "accept", "accept4", "bind", "connect", "listen", "recvmmsg", "sendmmsg", "setsockopt",
)  # fmt: skip
CHILDREN = ("execve", "execveat", "fork", "setpgid", "setsid", "vfork", "wait4", "waitid")

# Arguments: the index, and the allowed values.
FCNTL = (1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032))  # no owner, no signal, no seals
# Terminal attributes, bytes available, blocking.
IOCTL = (1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451))
PRCTL = (0, (2, 3, 15, 16, 21, 23, 39, 0x53564D41))  # reading state, and names; no PR_SET_PDEATHSIG
PR_SET_DUMPABLE = 4
PRLIMIT = (0, (0,))  # the process itself
CLONE_FORBIDDEN = 0x7E02A000  # new namespaces, a tracer, another parent


def enforce(*, network: bool, subprocesses: bool) -> bool:
    """Filter system calls by this process and its children. Return False if that isn't possible."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or pyseccomp is None:
        return False
    try:
        _rules(pyseccomp, network, subprocesses).load()
    except (OSError, ValueError):
        return False  # a kernel or container engine without filters
    return True


def _rules(seccomp: Any, network: bool, subprocesses: bool) -> Any:
    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    names = [*FILES, *MEMORY, *ITSELF, *WAITING, *SOCKETS]
    names += NETWORK if network else ()
    names += CHILDREN if subprocesses else ()

    def add(name: str, *arguments: Any, action: int = seccomp.ALLOW) -> None:
        # Calls unknown to this architecture or libseccomp need no rule.
        with contextlib.suppress(OSError, ValueError):
            rules.add_rule(action, name, *arguments)

    def add_values(name: str, argument: int, values: tuple[int, ...]) -> None:
        for value in values:  # 32 bits: the kernel ignores the rest
            add(name, seccomp.Arg(argument, seccomp.MASKED_EQ, 0xFFFFFFFF, value))

    for name in names:
        add(name)
    add_values("fcntl", *FCNTL)
    add_values("ioctl", *IOCTL)
    add_values("prctl", *PRCTL)
    dump = seccomp.Arg(0, seccomp.MASKED_EQ, 0xFFFFFFFF, PR_SET_DUMPABLE)
    add("prctl", dump, seccomp.Arg(1, seccomp.EQ, 0))  # only to make itself not dumpable
    add_values("prlimit64", *PRLIMIT)
    add_values("socketpair", 0, (socket.AF_UNIX,))
    if network:  # no Unix sockets: a container engine's would allow an escape
        add_values("socket", 0, (socket.AF_INET, socket.AF_INET6))
    if subprocesses:
        add("clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_FORBIDDEN, 0))
        add("clone3", action=seccomp.ERRNO(errno.ENOSYS))
    return rules

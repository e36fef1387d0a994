"""A filter of system calls for what Landlock leaves open. Standard library only.

Landlock says nothing about modes, owners, times and attributes of files; its first versions
nothing about truncating by name, signals and sockets; the owner of a process may slow it down or
limit it. The filter answers such calls with
EPERM, whatever they are about; it is for this process and its children, for good.
"""

import ctypes
import errno
import platform
import sys

from appliance.hub.plugins import syscalls

PR_SET_SECCOMP = 22
MODE_FILTER = 2
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
LOAD, EQUALS, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT, ARGUMENT_BYTES = 0, 4, 16, 8
OTHER_CALLS = 0x40000000  # x86-64's second table

# Of each architecture: its name for the filter, then numbers of calls.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
FILES = {
    "x86_64": {
        "truncate": 76, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94,
        "utime": 132, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
        "lremovexattr": 198, "fremovexattr": 199, "utimes": 235, "fchownat": 260,
        "futimesat": 261, "fchmodat": 268, "utimensat": 280,
    },
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
        "fremovexattr": 16, "truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
        "fchown": 55, "utimensat": 88,
    },
}  # fmt: skip
PROCESSES = {
    "x86_64": {
        "kill": 62, "ptrace": 101, "rt_sigqueueinfo": 129, "tkill": 200, "tgkill": 234,
        "rt_tgsigqueueinfo": 297, "process_vm_writev": 311, "setpriority": 141,
        "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203,
        "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279, "sched_setattr": 314,
    },
    "aarch64": {
        "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "process_vm_writev": 271, "ioprio_set": 30,
        "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122,
        "setpriority": 140, "migrate_pages": 238, "move_pages": 239, "sched_setattr": 274,
    },
}  # fmt: skip
CHILDREN = {
    "x86_64": {"clone": 56, "fork": 57, "vfork": 58, "clone3": 435},
    "aarch64": {"clone": 220, "clone3": 435},
}
FCNTL = {"x86_64": 72, "aarch64": 25}
SET_OWNER, SET_SIGNAL, SET_OWNER_EX = 8, 10, 15  # a descriptor that signals somebody
PRLIMIT = {"x86_64": 302, "aarch64": 261}
# The same everywhere. io_uring does all of this without calling any of it.
NEWER = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438, "process_madvise": 440,
    "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469,
}  # fmt: skip


Step = tuple[int, int, int, int]  # code, jump if so, jump if not, value


class Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction))]


def enforce(*, network: bool, subprocesses: bool) -> bool:
    """False where there is no such filter, or none for this architecture."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in ARCHITECTURES:
        return False
    steps = program(machine, network, subprocesses)
    listed = (Instruction * len(steps))(*[Instruction(*step) for step in steps])
    return syscalls.prctl_pointer(PR_SET_SECCOMP, MODE_FILTER, Program(len(steps), listed))


def program(machine: str, network: bool, subprocesses: bool) -> list[Step]:
    """The filter's instructions, in the order they are run."""
    numbers = {*FILES[machine].values(), *PROCESSES[machine].values(), *NEWER.values()}
    if not subprocesses:
        numbers |= set(CHILDREN[machine].values())
    if not network:
        numbers.add(SOCKET[machine])
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUALS, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, OTHER_CALLS),
        (RETURN, 0, 0, REFUSE),
    ]
    for number in sorted(numbers):
        steps += [(EQUALS, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    owners = (SET_OWNER, SET_SIGNAL, SET_OWNER_EX)
    steps += _by_argument(FCNTL[machine], 1, owners, found=REFUSE, other=ALLOW)
    steps += _by_argument(PRLIMIT[machine], 0, (0,), found=ALLOW, other=REFUSE)  # 0: its own
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _by_argument(
    number: int, argument: int, values: tuple[int, ...], *, found: int, other: int
) -> list[Step]:
    """What becomes of one call depends on one of its arguments, a number of 32 bits."""
    steps = [(LOAD, 0, 0, ARGUMENTS_AT + ARGUMENT_BYTES * argument)]
    for value in values:
        steps += [(EQUALS, 0, 1, value), (RETURN, 0, 0, found)]
    steps.append((RETURN, 0, 0, other))
    return [(EQUALS, 0, len(steps), number), *steps]

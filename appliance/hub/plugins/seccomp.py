"""A filter of system calls for what Landlock leaves open. Standard library only.

Landlock says nothing about modes, owners, times and attributes of files; its first versions
nothing about truncating by name, signals and sockets. The filter answers such calls with
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
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
OTHER_CALLS = 0x40000000  # x86-64's second table
INTERNET = {"AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40}

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
        "rt_tgsigqueueinfo": 297, "process_vm_writev": 311,
    },
    "aarch64": {
        "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "process_vm_writev": 271,
    },
}  # fmt: skip
CHILDREN = {
    "x86_64": {"clone": 56, "fork": 57, "vfork": 58, "clone3": 435},
    "aarch64": {"clone": 220, "clone3": 435},
}
# The same everywhere. io_uring does all of this without calling any of it.
NEWER = {"pidfd_send_signal": 424, "io_uring_setup": 425, "fchmodat2": 452,
         "setxattrat": 463, "removexattrat": 466, "file_setattr": 469}  # fmt: skip


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


def program(machine: str, network: bool, subprocesses: bool) -> list[tuple[int, int, int, int]]:
    """Instructions as (code, jump if so, jump if not, value)."""
    numbers = {*FILES[machine].values(), *PROCESSES[machine].values(), *NEWER.values()}
    if not subprocesses:
        numbers |= set(CHILDREN[machine].values())
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
    if not network:
        families = sorted(INTERNET.values())
        steps += [
            (EQUALS, 0, 1 + 2 * len(families), SOCKET[machine]),
            (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        ]
        for family in families:
            steps += [(EQUALS, 0, 1, family), (RETURN, 0, 0, REFUSE)]
    return [*steps, (RETURN, 0, 0, ALLOW)]

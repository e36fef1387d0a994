"""Standard streams that are closed or full, and what the system refuses, for commands."""

import errno
import os
import shlex
import sys

from appliance.kernel.errors import ApplianceError, Invalid, Unavailable


def open_closed_streams() -> None:
    """Open /dev/null for the standard streams that the caller closed, as `>&-` does."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def as_failure(error: OSError) -> ApplianceError:
    """Return the error for a file, a folder or an output that the system refuses."""
    reason = (error.strerror or type(error).__name__).lower()
    if error.filename is not None:
        path = os.fsdecode(error.filename)
        return Invalid(f"{path}: {reason}", hint=f"ls -ld {shlex.quote(path)}")
    if error.errno == errno.ENOENT:
        return Invalid("the current folder was deleted", hint="cd to a folder that exists")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        quiet_stdout()
        hint = "df -h; the command may have done its work: look before you repeat it"
        return Invalid(f"the output can't be written: {reason}", hint=hint)
    return Unavailable(reason, hint="agentlip doctor")


def quiet_stdout() -> None:
    """Prevent further output after a broken pipe, including the flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""A lower CPU priority for checks that run beside a process which serves."""

import os

from doctor.context import Context

NICENESS = 5
"""About a third of the ordinary share. At 10, on a machine without free CPU, the cheap checks took
seven times as long, close to their time limit."""


def lower_beside(context: Context) -> None:
    """Lowers the priority of this thread and those it starts, if another process uses the
    workspace. Never in the process that serves: without privileges it can't be raised again."""
    view = context.lock()
    if not view.held or (view.written is not None and view.written.pid == os.getpid()):
        return
    if os.getpriority(os.PRIO_PROCESS, 0) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)

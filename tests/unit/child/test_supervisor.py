"""A child ends with its supervisor, however early it is stopped and however the supervisor ends."""

import signal
import subprocess
import sys

import pytest

from tests.support.plugins import alive
from tests.support.until import until

# The child stops itself as the first thing that it does, and the supervisor says which one it is.
STOPPED = """
import os, signal, socket, sys
from appliance.child import supervisor
ours, theirs = socket.socketpair()
write = sys.stdout.fileno()
namespace, _ = supervisor.split(theirs.fileno(), subprocesses={subprocesses})
pid = os.readlink("/proc/self") if not namespace else ""
os.write(write, f"{{os.getppid() or ''}} {{pid}}\\n".encode())
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    signal.pause()
"""


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"T"


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.parametrize("subprocesses", [None, False])
def test_child_that_is_stopped_at_once_ends_with_a_killed_supervisor(subprocesses):
    """Also as the first process of a PID namespace, where root can make one."""
    script = STOPPED.format(subprocesses=subprocesses)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        (child,) = children(running.pid)
        if subprocesses is None:  # SIGSTOP does not reach the first process of a namespace
            until(lambda: is_stopped(child), 30, "a stopped child")
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=30)
        until(lambda: not alive(child), 30, "the end of the child")

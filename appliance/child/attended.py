"""Runs a command that ends, with all descendants, when the starting process ends.

`python -m appliance.child.attended DESCRIPTOR COMMAND…`: the descriptor hangs up at that moment.
The command stays in the session and the process group, with access to the terminal.
"""

import os
import signal
import sys

from appliance.child import supervisor

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
EXIT_SIGNALLED = 128


if __name__ == "__main__":
    watched, words = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(watched, False)
    supervisor.split(watched, subprocesses=None, passed_on=PASSED_ON, after=lambda code: os._exit(
        1 if code is None else code if code >= 0 else EXIT_SIGNALLED - code
    ))  # fmt: skip
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    os.execvp(words[0], words)

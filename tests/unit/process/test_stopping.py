"""How processes are ended."""

import os
import signal
import subprocess
import sys

from appliance.process import stopping

SECONDS_MAX = 30.0


def test_process_that_is_stopped_ends_as_gracefully_as_one_that_runs() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until it is stopped
        assert stopping.end(process.pid, signal.SIGTERM, SECONDS_MAX)
        assert process.wait(SECONDS_MAX) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_process_that_ignores_the_request_is_reported_and_killed() -> None:
    ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); print(); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-uc", ignoring], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not stopping.end(process.pid, signal.SIGTERM, 0.1)
        assert stopping.end(process.pid, signal.SIGKILL, SECONDS_MAX)
        assert process.wait(SECONDS_MAX) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()

"""How processes are ended."""

import signal
import subprocess
import sys

from appliance.process import stopping

SECONDS_MAX = 30.0


def test_process_that_is_stopped_ends_as_gracefully_as_one_that_runs() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process.send_signal(signal.SIGSTOP)
        assert stopping.end(process.pid, signal.SIGTERM, SECONDS_MAX)
        assert process.wait(SECONDS_MAX) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()

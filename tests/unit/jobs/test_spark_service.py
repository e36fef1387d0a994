"""Spark beside the appliance: jobs that are requested over a socket, as processes."""

import signal
import subprocess
import sys

import pytest

from tests.support.until import until

COMMAND = [sys.executable, "-m", "appliance.jobs.spark_service"]
SCRIPT = 'echo "$COLOR $PWD $1"; echo oh >&2; exit $2'


@pytest.fixture
def socket(tmp_path):
    path = tmp_path / "socket"
    with subprocess.Popen([*COMMAND, "serve", path, "bash", "-c"]) as service:
        until(path.exists, 30, "it listens")
        yield path
        service.terminate()


def start(socket, *arguments, **environment):
    return subprocess.Popen(
        [*COMMAND, "request", socket, *arguments], cwd=socket.parent,
        env={"PYTHONPATH": ":".join(sys.path), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_request_has_output_and_exit_code_of_the_program(socket):
    job = start(socket, SCRIPT, "x", "ingest", "7", COLOR="red")
    out, errors = job.communicate(timeout=60)
    assert (job.returncode, out, errors) == (7, f"red {socket.parent} ingest\n", "oh\n")


def test_program_ends_with_its_request(socket):
    with start(socket, "echo $$; sleep 600 & wait") as job:
        pid = job.stdout.readline().strip()
        job.send_signal(signal.SIGKILL)
        until(lambda: not is_running(pid), 30, "the program has ended")


def is_running(pid):
    listed = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return listed.stdout.strip()[:1] not in ("", "Z")

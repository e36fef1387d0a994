"""Commands below a supervisor: what they get, what is kept of them, and how all of it ends."""

import os
import signal
from functools import partial

import gevent
import pytest

from appliance.child.command import Commands
from appliance.kernel.clock import SystemClock
from tests.support.plugins import alive
from tests.support.until import gevent_until

pytestmark = pytest.mark.slow

# Leaves a process in a session of its own, whose parent has ended.
DAEMON = "(setsid sh -c 'echo $$ > pid; sleep 600' &); until [ -s pid ]; do sleep 0.01; done; "


@pytest.fixture
def commands():
    return Commands(SystemClock())


@pytest.fixture
def run(commands, tmp_path):
    """Runs a script, or a list of arguments."""

    def call(script, text=b"", **changed):
        limits = {"seconds_max": 60.0, "kill_after_seconds": 60.0, "output_bytes_max": 1000}
        more = {"folder": tmp_path, **limits, **changed}
        command = script if isinstance(script, list) else ["sh", "-c", script]
        return commands.run(command, text, {"PATH": os.environ["PATH"]}, **more)

    return call


def daemon(tmp_path):
    """The pid of what DAEMON has left."""
    file = tmp_path / "pid"
    return int(gevent_until(lambda: file.exists() and file.read_text()))


def test_command_ends_with_the_template_and_the_next_one_has_another(commands, run, tmp_path):
    running = gevent.spawn(run, f"trap '' TERM; {DAEMON} sleep 600")
    pid = daemon(tmp_path)
    os.kill(commands._template._process.pid, signal.SIGKILL)
    assert running.get(timeout=60).code == -signal.SIGKILL
    assert not alive(pid)
    assert run("true").code == 0


def test_command_that_handles_sigterm_has_a_grace(run):
    trap = "trap 'echo bye; exit 7' TERM; echo begun; while :; do sleep 0.01; done"
    done = run(trap, seconds_max=2.0)
    assert (done.code, done.output, done.timed_out) == (7, b"begun\nbye\n", True)
    done = run(trap.replace("exit 7", ""), seconds_max=2.0, kill_after_seconds=0.2)
    assert (done.code, done.output, done.timed_out) == (-9, b"begun\nbye\n", True)


def test_interrupted_call_ends_the_command(run, tmp_path):
    trap = f"trap 'echo > ended; exit' TERM; {DAEMON} while :; do sleep 0.01; done"
    running = gevent.spawn(run, trap)
    pid = daemon(tmp_path)
    running.kill()
    assert (tmp_path / "ended").exists()
    assert not alive(pid)


def test_command_that_can_not_be_started_has_no_code(run, tmp_path):
    for start in (partial(run, ["no-such-program"]), partial(run, "true", folder=tmp_path / "x")):
        done = start()
        assert (done.code, done.output, done.timed_out) == (None, b"", False)
    assert run("exit 127").code == 127


def test_command_gets_only_its_order(run, tmp_path):
    done = run("env | grep -v -e ^_= -e ^SHLVL=; ls /proc/self/fd; nice", niceness=7)
    environment, own = [f"PATH={os.environ['PATH']}", f"PWD={tmp_path}"], ["0", "1", "2", "3"]
    assert sorted(done.output.decode().split()) == sorted([*environment, *own, "7"])


def test_unread_input_passes_and_output_is_limited(run):
    text = b"x" * 300_000
    assert run("wc -c", text).output.strip() == b"300000"
    script = "exec 0<&-; head -c 200000 /dev/zero >&2; echo end >&2; seq 100000"
    done = run(script, text, errors_bytes_max=5)
    assert (done.code, done.truncated, done.errors) == (0, True, b"\0end\n")
    assert done.output == run("seq 1000").output[:1000]

"""Attempts as processes: what forks them, what they inherit, and how they end."""

import os
import signal
import sys
from pathlib import Path

import gevent
import pytest

from appliance.child.fork_template import ForkTemplate
from appliance.jobs.executor import AttemptOrder
from appliance.jobs.process import CGROUPS, LAUNCHER, ProcessExecution
from appliance.jobs.wire import JobSpec
from tests.support.until import gevent_until

pytestmark = pytest.mark.slow

LIMITS = "cd /sys/fs/cgroup/$(sed -n s/^0:://p /proc/self/cgroup); cat memory.max cpu.max"
LOOKING = 'env | grep -v ^_= | cut -d= -f1; ls /proc/self/fd; read x || echo "no input"'


@pytest.fixture
def template():
    made = ForkTemplate(LAUNCHER)
    yield made
    made.close()


@pytest.fixture
def start(template, tmp_path):
    def begin(script, run_id="run_1", **limits):
        spec, kept = JobSpec(command=("sh", "-c", script), **limits), tmp_path / run_id
        order = AttemptOrder(run_id, "job", 1, spec, 0, {"ONLY": "1"}, tmp_path, kept)
        return ProcessExecution(template, order)

    return begin


@pytest.fixture
def delegated():
    """This process is in a cgroup below one that was delegated to it, as systemd does it."""
    controllers = CGROUPS / "cgroup.controllers"
    if not controllers.exists() or not {"cpu", "memory"} <= {*controllers.read_text().split()}:
        pytest.skip("no cgroups of version 2 with both controllers")
    own = CGROUPS / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    above = CGROUPS / f"agentlip-{os.getpid()}"
    (above / "appliance").mkdir(parents=True)
    (CGROUPS / "cgroup.subtree_control").write_text("+memory +cpu")
    os.setxattr(above, "user.delegate", b"1")
    (above / "appliance/cgroup.procs").write_text(str(os.getpid()))
    yield above
    (own / "cgroup.procs").write_text(str(os.getpid()))
    for folder in (above / "appliance", above):
        gevent_until(lambda folder=folder: "populated 0" in (folder / "cgroup.events").read_text())
        folder.rmdir()


def stat(pid):
    """State and parent of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
    except OSError:
        return [b"gone", b"0"]


def supervisor(execution):
    return int(execution.handle.partition(":")[0])


def test_command_inherits_only_its_order(start, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    with open(os.devnull) as kept_open:
        os.dup2(kept_open.fileno(), 251)  # inheritable
        names = set(start(LOOKING).wait().tail.split())
    assert {"ONLY", "PATH", "PWD", "0", "1", "2", "3", "no", "input"} >= names - {
        "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "OLDPWD", "SHLVL",
    }  # fmt: skip
    os.close(251)
    assert {"ONLY", "PATH", "no", "input"} <= names


def test_all_ends_with_the_template_and_the_next_attempt_has_another_one(start):
    sleeping = [start("setsid sleep 600 & sleep 600", f"run_{number}") for number in range(3)]
    waiting = [gevent.spawn(execution.wait) for execution in sleeping]
    former = int(stat(supervisor(sleeping[0]))[1])
    assert {int(stat(supervisor(execution))[1]) for execution in sleeping} == {former}
    os.kill(former, signal.SIGKILL)
    assert [each.get(timeout=60).state for each in waiting] == ["lost"] * 3
    gevent_until(lambda: {stat(supervisor(each))[0] for each in sleeping} <= {b"gone", b"Z"})
    following = start("true", "run_9")
    assert int(stat(supervisor(following))[1]) not in (former, 0)
    assert following.wait().state == "succeeded"


def test_ended_attempts_leave_no_zombie(start, template):
    ended = [start("exit 3", f"run_{number}") for number in range(5)]
    assert {execution.wait().exit_code for execution in ended} == {3}
    gevent_until(lambda: {stat(supervisor(each))[0] for each in ended} == {b"gone"})


def test_stopped_supervisor_is_killed_with_its_attempt(start):
    execution = start("sleep 600")
    waiting = gevent.spawn(execution.wait)
    gevent.sleep(0)
    os.kill(supervisor(execution), signal.SIGSTOP)
    execution.kill()
    gevent_until(lambda: stat(supervisor(execution))[0] == b"gone")
    waiting.kill()


@pytest.mark.root
def test_delegated_cgroup_limits_the_job_as_a_whole(delegated, start):
    execution = start(LIMITS, memory_mb=64, cpus=0.5)
    assert execution.wait().tail.split() == [str(64 * 2**20), "50000", "100000"]
    assert execution.limits == "cgroup"
    greedy = start(f"{sys.executable} -c 'bytearray(2**30)'", "run_2", memory_mb=64)
    assert greedy.wait().exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    gevent_until(lambda: list(delegated.glob("job-*")) == [])

"""A start ends in time: by its own limit, or by that of the command that waits for it."""

import os
import subprocess
import sys
from pathlib import Path

from appliance.process import starting
from appliance.process.starting import ANNOUNCED_SECONDS_MAX, StartDeadline, announce_phase
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.support.commands import agentlip, environment

HANGING_SERVER = """
import os, sys
from appliance import server
from appliance.process import watchdog
watchdog.SERVER_SECONDS_MAX = 0.1
server.prepare = lambda *_: os.read(os.pipe()[0], 1)
sys.exit(server.main(sys.argv[1:]))
"""


def test_limit_counts_from_the_last_announced_work(tmp_path: Path) -> None:
    clock, datadir, pid = FakeClock(), DataDir(tmp_path), os.getpid()
    datadir.lock_file.parent.mkdir(parents=True)

    def work() -> None:
        (tmp_path / "copy").write_bytes(bytes(2 * starting.WORK_BYTES))

    deadline = StartDeadline(clock, 55.0)
    work()
    clock.pass_seconds(54.0)
    assert not deadline.has_passed(datadir, pid)
    clock.pass_seconds(1.0)
    assert deadline.has_passed(datadir, pid), "the work was not announced"

    deadline = StartDeadline(clock, 55.0)
    with announce_phase(datadir, "opening its databases"):
        with announce_phase(datadir, "migrating"):
            assert starting.phase_of(datadir, pid) == "migrating"
        for _ in range(3):
            work()
            assert not deadline.has_passed(datadir, pid)
            clock.pass_seconds(1000.0)
        assert deadline.has_passed(datadir, pid), "it was announce_phase, and nothing was done"
        clock.pass_seconds(ANNOUNCED_SECONDS_MAX)
        work()
        assert deadline.has_passed(datadir, pid), "the limit of all work"
    assert not starting.phase_of(datadir, pid)


def test_server_that_hangs_ends_itself_and_says_what_it_waited_for(tmp_path: Path) -> None:
    agentlip("init", cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", HANGING_SERVER, "--workspace", str(tmp_path)],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert "; it waited for its databases\nHint: agentlip doctor --workspace " in done.stderr

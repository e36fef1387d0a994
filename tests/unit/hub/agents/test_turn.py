"""A turn's process ends with everything that it started."""

import os
import threading

import pytest

from appliance.hub.agents import turn
from appliance.hub.agents.turn_runner import Limits, Replaced, TurnRunner
from appliance.hub.agents.work import Work
from appliance.kernel.clock import SystemClock
from tests.support.until import until

DEAF = """trap "" TERM; sleep 600 & echo $! > {file}.new; mv {file}.new {file}; wait"""


RUNNER = {"run_id": "7@host", "state": "asleep", "state_since": "2026-02-04T20:00:00.000Z"}


class ReplacedHub:
    """A hub that gives the agent's name to another program after the turn's first report."""

    reports = 0

    def get(self, _path, **_query):
        return {"claims": []}

    def post(self, path, _body, _key):
        self.reports += path.endswith("/report")
        return {"pause": None, "newest": self.reports < 2, "runner": RUNNER, "last_turn": 0}


def test_turn_ends_when_another_program_runs_the_agent():
    words = ["sleep", "600"]
    runner = TurnRunner(ReplacedHub(), "ada", words, Limits(), SystemClock(), lambda _: None)
    with pytest.raises(Replaced):
        runner.run(Work())


def test_descendants_of_deaf_turn_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(turn, "GRACE_SECONDS", 0.1)
    file, stop = tmp_path / "pid", threading.Event()
    results = []

    def run():
        words = ["sh", "-c", DEAF.format(file=file)]
        work = {"agent": "ada", "turn": 1}
        results.append(
            turn.run_turn(words, work, text=None, seconds_max=600.0, stop=stop, clock=SystemClock())
        )

    thread = threading.Thread(target=run)
    thread.start()
    until(file.exists, 30, "the turn runs")
    stop.set()
    thread.join(30)
    assert results[0].outcome == "stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)

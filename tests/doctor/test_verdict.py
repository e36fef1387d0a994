"""One run of the checks at a time, shared by all requests, and ended with the server."""

from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from appliance.checks.check import Finding, Severity
from appliance.kernel import subprocess_runner
from appliance.kernel.subprocess_runner import CommandResult
from appliance.workspace.datadir import DataDir
from doctor.report import WorkspaceFacts, as_json, report
from doctor.run import CheckOutcome
from doctor.verdict import VerdictQuery, Verdicts, VerdictUnavailable
from tests.support.clock import FakeClock

EVERYTHING = VerdictQuery()
FULL = Finding(Severity.ERROR, "disk", "full", "", "host.disk", "full")
PAUSED = Finding(Severity.ERROR, "hub", "pauses", "", "store.writer", "paused", "host.disk:full")


class FakeRunner:
    """Each run waits for `go` and then gives a report with these findings."""

    def __init__(self) -> None:
        self.runs = 0
        self.ended = 0
        self.code: int | None = 0
        self.go = Event()
        self.go.set()
        self.begun = Event()
        self.findings: tuple[Finding, ...] = ()

    def run(self, *_arguments: object, **_limits: object) -> CommandResult:
        self.runs += 1
        self.begun.set()
        try:
            self.go.wait(10)
        finally:
            self.ended += 1
        names = ("host.disk", "store.writer", "hub.search")
        outcomes = [
            CheckOutcome(name, "", tuple(each for each in self.findings if each.check == name))
            for name in names
        ]
        output = as_json(report(WorkspaceFacts(workspace="w"), outcomes)).encode()
        return CommandResult(self.code, output, False, False, 0.1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    fake = FakeRunner()
    monkeypatch.setattr(subprocess_runner, "run", fake.run)
    return fake


@pytest.fixture
def verdicts(tmp_path: Path, clock: FakeClock, runner: FakeRunner) -> Verdicts:
    return Verdicts(DataDir(tmp_path), clock)


def test_end_stops_the_run_and_waiting_requests(verdicts: Verdicts, runner: FakeRunner) -> None:
    runner.go.clear()
    asking = [gevent.spawn(verdicts.verdict, EVERYTHING) for _ in range(3)]
    assert runner.begun.wait(10)
    verdicts.end()
    gevent.joinall(asking, timeout=10)
    assert [type(each.exception) for each in asking] == [VerdictUnavailable] * 3
    assert (runner.runs, runner.ended) == (1, 1)


def test_chosen_checks_bring_the_cause_of_their_findings(
    verdicts: Verdicts, runner: FakeRunner
) -> None:
    runner.findings = (FULL, PAUSED)
    chosen = verdicts.verdict(VerdictQuery(run="store.writer"))
    assert [outcome.check for outcome in chosen.checks] == ["host.disk", "store.writer"]
    other = verdicts.verdict(VerdictQuery(group="hub"))
    assert [outcome.check for outcome in other.checks] == ["hub.search"]
    assert (other.verdict, other.errors) == ("ok", 0)
    assert runner.runs == 1

"""Processes that are forked from one with all imports behave as those with their own."""

import signal
from pathlib import Path

import pytest

from tests.support import forkserver
from tests.support.commands import CommandOutput, agentlip, environment, start_that_ends
from tests.support.hubprocess import HubProcess

OWN = {"TESTS_OWN_PROCESS": "1"}  # not the environment of the forked ones


def outcome_of(done: CommandOutput) -> tuple[int, str, str]:
    return done.code, done.out, done.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["channel", "list", "--json"], 1), (["listen"], 1)],
    ids=["version", "error as JSON", "error"],
)
def test_forked_command_has_code_and_output_of_one_of_its_own(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    forked = agentlip(*arguments, cwd=tmp_path)
    assert outcome_of(forked) == outcome_of(agentlip(*arguments, cwd=tmp_path, **OWN))
    assert forked.code == code
    assert forked.out + forked.err


def test_another_environment_gets_a_process_of_its_own() -> None:
    assert forkserver.find("commands", environment()) is not None
    assert forkserver.find("commands", environment(**OWN)) is None


def test_forked_server_ends_with_its_code_or_signal(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path)
    instances = set()
    for ending, code in ((hub.stop, 0), (hub.kill, -signal.SIGKILL)):
        hub.start()
        process = hub.process
        assert isinstance(process, forkserver.ForkedProcess)
        assert process.poll() is None
        instances.add(hub.request("GET", "/health")["instance_id"])
        ending()
        assert process.wait() == process.poll() == code
        process.kill()  # does nothing: its pid may be that of another process
    assert len(instances) == 2


def test_forked_server_that_is_refused_ends_with_its_reason(tmp_path: Path) -> None:
    with HubProcess(tmp_path).running():
        refused = start_that_ends(tmp_path)
    assert refused.code == 2
    assert "Error: " in refused.err
    assert "Traceback" not in refused.err

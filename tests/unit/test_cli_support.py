"""Output, errors and exit codes, without a workspace."""

import json
import re
import sys
from typing import Any

import pytest

from appliance import cli_support
from appliance.cli import main, main_daemon
from appliance.kernel.errors import (
    Conflict,
    Forbidden,
    Invalid,
    Lost,
    Missing,
    Unauthenticated,
    Unavailable,
)
from appliance.sdk.http import Refused
from tests.support.clock import FakeClock
from tests.support.command_outputs import every_command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid(), 1),
        (Missing(), 1),
        (Conflict(), 2),
        (Lost(), 2),
        (Unavailable(), 3),
        (Unauthenticated(), 4),
        (Forbidden(), 4),
        (Refused(400, {}), 1),
        (Refused(404, {}), 1),
        (Refused(409, {}), 2),
        (Refused(422, {}), 1),
        (Refused(401, {}), 4),
        (Refused(403, {}), 4),
        (Refused(429, {}), 1),
        (Refused(503, {}), 3),
        (Refused(500, {}), 1),
    ],
)
def test_exit_code_follows_the_kind(
    error: Any, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli_support.report_error(error, machine=False) == code
    assert capsys.readouterr().err.startswith("Error: ")


def test_control_characters_of_an_error_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    cli_support.report_error(Missing("topic not found: \x1b[2Jgone\x07"), machine=False)
    printed = capsys.readouterr().err
    assert "[2Jgone" in printed
    assert not {"\x1b", "\x07"} & set(printed)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["msg", "send"], ["msg", "tail", "--limit", "x"]]
)
def test_wrong_usage_is_exit_1_because_2_means_conflict(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert main([*arguments, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["code"] == "INVALID_INPUT"


def test_version_is_shown_by_flag_and_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["version"]) == 0
    assert main_daemon(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(set(lines)) == 1
    assert re.fullmatch(r"agentlip \S+( \(commit [0-9a-f]{12}, \d{4}-\d\d-\d\d\))?", lines[0])


def test_no_command_takes_a_token_as_an_argument() -> None:
    """Arguments are seen by everybody on the machine; secrets come from files."""
    seen = 0
    for name, command in every_command():
        for parameter in command.params:
            seen += 1
            words = {word for option in parameter.opts for word in option.strip("-").split("-")}
            if words & {"token", "secret", "password"}:
                assert words & {"file", "new", "id", "token_id"}, f"{name} {parameter.opts}"
    assert seen > 100


def test_any_output_overwrites_the_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = cli_support.ProgressLine(FakeClock())
    line.show("half", at_once=True)
    cli_support.note("done")
    cli_support.note("twice")
    assert capsys.readouterr().err == "\r\x1b[K".join(["half", "done\ntwice\n"])


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("AGENTLIP_TOKEN_FILE", "channel list"),
        ("AGENTLIP_USAGE_FILE", "agent report"),
        ("AGENTLIP_WORKSPACE", "status"),
        ("AGENTLIP_NETWORK_FOLDER", "network contacts"),
    ],
)
def test_error_names_the_variable_and_its_file(variable, words, tmp_path, monkeypatch, capsys):
    if variable != "AGENTLIP_WORKSPACE":
        monkeypatch.setenv("AGENTLIP_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, str(tmp_path / "gone/file"))
    assert main(words.split()) == 1
    shown = capsys.readouterr().err
    assert f"{variable}: " in shown
    assert str(tmp_path / "gone/file") in shown

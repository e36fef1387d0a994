"""What a person at a terminal sees: near matches, followed messages, a link."""

import json
import os
import pty
import re
import select
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import agentlip, agentlipd, command, environment, succeed
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow

SECONDS_MAX = 60


def on_terminal(*arguments: str, cwd: Path, program: str = "agentlip", columns: int = 200) -> str:
    """The output of `program` on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(program, *arguments), stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd,
        env=environment(TERM="xterm-256color", COLUMNS=str(columns)),
    )  # fmt: skip
    os.close(theirs)
    output = b""
    try:
        while select.select([ours], [], [], SECONDS_MAX)[0]:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the terminal's other end is closed
                break
            output += piece
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        os.close(ours)
    return output.decode().replace("\r\n", "\n")


@pytest.fixture
def topic_id(hub: HubProcess, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    agentlip("channel", "create", "terminal", cwd=hub.workspace)
    made = agentlip(
        "topic", "create", "--channel", "terminal", request.node.name, "--json", cwd=hub.workspace
    )
    return str(made.json["topic"]["id"])


def send(hub: HubProcess, topic_id: str, content: str) -> None:
    succeed(
        "msg", "send", "--topic-id", topic_id, "--sender", "me", "--content", content,
        cwd=hub.workspace,
    )  # fmt: skip


# -- listen ----------------------------------------------------------------------------------


def test_listen_is_readable_on_a_terminal_and_json_on_request(
    hub: HubProcess, topic_id: str
) -> None:
    send(hub, topic_id, "Good \x1b[31mmorning")
    flags = ("listen", "--topic-id", topic_id, "--name", "message.created", "--exit-after", "1")
    line = on_terminal(*flags, cwd=hub.workspace)
    assert re.fullmatch(
        r"\d{4}-\S+Z  \d+  message\.created +me: Good \S+morning \(msg_\w+\)\n", line
    ), line
    assert "\x1b" not in line
    for machine in (["--json"], ["--jsonl"], ["--format", "jsonl"]):
        event = json.loads(on_terminal(*flags, *machine, cwd=hub.workspace))
        assert event["data"]["message"]["content_raw"] == "Good \x1b[31mmorning"


# -- up ----------------------------------------------------------------------------------------


def test_start_prints_a_link_to_a_person_and_to_nobody_else(tmp_path: Path) -> None:
    try:
        first = agentlipd("up", cwd=tmp_path).out
        assert re.search(r"^  UI +http://127.0.0.1:\d+/ui/$", first, re.MULTILINE), first
        shown = on_terminal("up", program="agentlipd", cwd=tmp_path)
        link = re.search(r"^  UI +http://127.0.0.1:\d+/ui/#invite=(\S+)$", shown, re.MULTILINE)
        assert link, shown
        for path in (tmp_path / ".agentlip").rglob("*"):
            assert not path.is_file() or link[1].encode() not in path.read_bytes(), path
    finally:
        agentlipd("down", cwd=tmp_path)


# -- help and near matches -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["chanel", "list"], "no such command 'chanel'. Did you mean 'channel'?"),
        (["send", "#a", "x"], "no such command 'send'. Did you mean 'outbox send', 'msg send'?"),
        (["up", "--port", "0"], "no such command 'up'. Did you mean 'agentlipd up'?"),
        (["dwon"], "no such command 'dwon'. Did you mean 'agentlipd down'?"),
        (["restore"], "no such command 'restore'. Did you mean 'agentlip backup restore'?"),
        (["channel", "lst"], "no such command 'lst'. Did you mean 'list'?"),
        (["channel", "list", "--limt", "3"], "no such option: --limt (Possible options: --limit)"),
        (["wholly-different"], "no such command 'wholly-different'\n"),
    ],
)
def test_mistyped_command_gets_a_similar_suggestion(
    tmp_path: Path, arguments: list[str], near: str
) -> None:
    done = agentlip(*arguments, cwd=tmp_path)
    assert done.code == 1
    assert done.err.startswith(f"Error: {near}")

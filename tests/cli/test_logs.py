"""`agentlipd logs`: the end of the log, and what is added."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip, agentlipd, command, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    agentlip("init", cwd=tmp_path)
    return tmp_path


@pytest.fixture
def log(workspace: Path) -> Path:
    return DataDir(workspace).logs / "agentlipd.log"


def line(number: int, **more: object) -> str:
    fact = {"level": "info", "ts": "2026-01-01T00:00:00.000Z", "msg": f"line {number}", **more}
    return json.dumps(fact) + "\n"


def numbers(lines: list[dict[str, str]]) -> list[int]:
    return [int(line["msg"].removeprefix("line ")) for line in lines]


def test_last_lines_include_the_rotated_log(workspace: Path, log: Path) -> None:
    log.with_name("agentlipd.log.1").write_text("".join(line(n) for n in range(10_000)))
    log.write_text("".join(line(n) for n in range(10_000, 10_005)))
    read = agentlipd("logs", "--json", "--lines", 3_000, cwd=workspace).lines
    assert numbers(read) == list(range(7_005, 10_005))
    assert numbers(agentlipd("logs", "--json", "-n", 2, cwd=workspace).lines) == [10_003, 10_004]
    assert agentlipd("logs", "-n", 0, cwd=workspace).out == ""
    log.unlink()
    assert numbers(agentlipd("logs", "--json", "-n", 1, cwd=workspace).lines) == [9_999]


def test_line_that_is_not_json_becomes_one_object_and_cannot_steer_the_terminal(
    workspace: Path, log: Path
) -> None:
    log.write_bytes(b"Error: \x1b[31mno\xff\n" + line(1, path="/x").encode() + b'["a"]')
    lines = agentlipd("logs", "--json", cwd=workspace).lines
    assert lines[0] == {"msg": "Error: \x1b[31mno\N{REPLACEMENT CHARACTER}"}
    assert lines[2] == {"msg": '["a"]'}
    text = agentlipd("logs", cwd=workspace).out
    assert "\x1b" not in text
    assert text.splitlines()[1] == "2026-01-01T00:00:00.000Z  info     line 1  path=/x"


@pytest.fixture
def following(workspace: Path, log: Path) -> Iterator["subprocess.Popen[str]"]:
    log.write_text(line(1) + line(2) + line(3))
    process = subprocess.Popen(
        command("agentlipd", "logs", "-f", "--lines", "2", "--json"), stdout=subprocess.PIPE,
        cwd=workspace, env=environment(), text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait(10)


def test_follow_continues_after_rotation_and_truncation(
    following: "subprocess.Popen[str]", log: Path
) -> None:
    assert following.stdout is not None

    def read(count: int) -> list[int]:
        assert following.stdout is not None
        return numbers([json.loads(following.stdout.readline()) for _ in range(count)])

    assert read(2) == [2, 3]
    with log.open("a") as file:
        file.write(line(4))
        file.write(line(5)[:20])  # a line that is still being written
        file.flush()
        assert read(1) == [4]
        file.write(line(5)[20:])
    assert read(1) == [5]
    with log.open("a") as file:
        log.replace(log.with_name("agentlipd.log.1"))
        file.write(line(6))  # by the server that has the old one open
    log.write_text(line(7) + line(8))
    assert read(3) == [6, 7, 8]
    log.write_text(line(9))  # cut, and shorter now
    assert read(1) == [9]
    following.send_signal(signal.SIGINT)
    assert following.wait(20) == 0

"""`agentlipd logs`: the end of the log, and what is added."""

import json
from pathlib import Path

import pytest

from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip, agentlipd

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


def test_line_without_json_becomes_one_harmless_object(workspace: Path, log: Path) -> None:
    log.write_bytes(b"Error: \x1b[31mno\xff\n" + line(1, path="/x").encode() + b'["a"]')
    lines = agentlipd("logs", "--json", cwd=workspace).lines
    assert lines[0] == {"msg": "Error: \x1b[31mno\N{REPLACEMENT CHARACTER}"}
    assert lines[2] == {"msg": '["a"]'}
    text = agentlipd("logs", cwd=workspace).out
    assert "\x1b" not in text
    assert text.splitlines()[1] == "2026-01-01T00:00:00.000Z  info     line 1  path=/x"

"""`agentlip audit`, and what commands record while no appliance runs."""

import hashlib
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from appliance.audit.log.file import file_in
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

CREATE = ("token", "create", "--scope", "hub:read", "--name")
USER = f"user:{pwd.getpwuid(os.geteuid()).pw_name}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    assert agentlip("init", cwd=tmp_path).code == 0
    return tmp_path


def acts(workspace: Path, *flags: str) -> Any:
    return agentlip("audit", "list", "--json", *flags, cwd=workspace).json


def names(workspace: Path) -> list[str]:
    return [act["act"] for act in reversed(acts(workspace))]


def verified(workspace: Path) -> Any:
    done = agentlip("audit", "verify", "--json", cwd=workspace)
    assert done.code == (1 if done.json["broken"] or done.json["former"] else 0)
    return done.json


def test_command_on_a_stopped_workspace_is_recorded_without_its_secret(workspace: Path) -> None:
    secret = agentlip(*CREATE, "bob", cwd=workspace).out.strip()
    (act,) = acts(workspace)
    assert (act["act"], act["actor"], act["via"]) == ("agentlip token create", USER, "cli")
    assert act["began"]["request"] == {"name": "bob", "scope": ["hub:read"]}
    assert act["began"]["before"]["store_bytes"]["auth"]
    assert act["outcome"] == "done"
    assert act["ended"]["answer"]["secret"] == "[hidden]"
    assert secret.encode() not in file_in(workspace).read_bytes()
    table = agentlip("audit", "list", cwd=workspace).out
    assert "agentlip token create" in table
    assert "name=bob" in table


def test_command_that_sends_a_request_is_recorded_once_by_the_appliance(tmp_path: Path) -> None:
    with serve(tmp_path):
        agentlip(*CREATE, "bob", cwd=tmp_path)
        assert names(tmp_path) == ["POST /api/v1/tokens"]


def test_each_backup_notes_the_head_and_a_restore_carries_the_newer_chain(workspace: Path) -> None:
    agentlip(*CREATE, "before", cwd=workspace)
    made = agentlip("backup", "create", "--json", cwd=workspace).json
    shown = agentlip("backup", "show", made["name"], "--json", cwd=workspace).json
    number, _, digest = shown["stores"]["audit"]["head"].partition(":")
    agentlip(*CREATE, "after", cwd=workspace)
    succeed("backup", "restore", made["name"], "--yes", cwd=workspace)
    assert names(workspace) == [
        "agentlip token create", "agentlip backup create", "agentlip token create",
        "agentlip backup restore",
    ]  # fmt: skip
    restore = acts(workspace)[0]
    assert restore["outcome"] == "done"
    before, after = restore["began"]["before"], restore["ended"]["after"]
    assert before["epoch"] != after["epoch"]
    now = verified(workspace)
    assert (now["records"], now["head"], now["broken"], now["former"]) == (8, 8, 0, [])
    rows = agentlip("audit", "export", cwd=workspace).lines
    assert rows[int(number) - 1]["hash"] == digest


def test_exported_records_can_be_verified_by_another_program(workspace: Path) -> None:
    agentlip(*CREATE, "bob", cwd=workspace)
    previous = ""
    for line in agentlip("audit", "export", cwd=workspace).lines:
        detail = json.dumps(line["detail"], separators=(",", ":"), ensure_ascii=False)
        fields = [line[name] for name in ("seq", "at_ms", "act", "phase", "began", "actor", "via")]
        text = json.dumps([*fields, detail, previous], separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == line["hash"]
        assert line["previous"] == previous
        previous = line["hash"]
    rest = agentlip("audit", "export", "--after", "1", cwd=workspace).lines
    assert [line["seq"] for line in rest] == [2]

"""`agentlip backup`: what it prints, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.backup.errors import BackupRunning
from tests.support.backup_workspace import Backups
from tests.support.commands import CommandOutput, environment, run
from tests.support.workspaces import Filled


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    filled = Filled(tmp_path / "workspace", messages=3)
    filled.datadir.settings_file.write_text("[backup]\nfree_bytes_min = 0\n")
    return filled


def backup(filled: Filled, *arguments: str, **env: str) -> CommandOutput:
    return run("agentlip", "backup", *arguments, cwd=filled.path, **env)


def test_backups_are_made_listed_and_shown(filled: Filled) -> None:
    empty = backup(filled, "list")
    assert (empty.code, empty.err) == (0, "no backups: agentlip backup create\n")
    assert backup(filled, "show").code == 10
    made = backup(filled, "create")
    assert made.code == 0, made
    name = made.out.partition(":")[0]
    assert "3 messages" in made.out
    assert "writers paused for" in made.out
    asked = backup(filled, "create", "--scheduled", "--json").json
    assert (asked["reason"], asked["messages"], asked["encrypted"]) == ("schedule", 3, False)
    listed = backup(filled, "list").out.splitlines()
    assert listed[0].split() == [
        "NAME", "CREATED", "REASON", "SIZE", "MESSAGES", "VERIFIED", "ENCRYPTED"
    ]  # fmt: skip
    assert [line.split()[0] for line in listed[1:]] == sorted([name, asked["name"]])
    shown = backup(filled, "show", name)
    assert "messages 3" in shown.out
    assert "db.sqlite3.zst" in shown.out
    manifest = backup(filled, "show", "--json").json
    assert manifest["verification"] is None
    assert manifest["stores"]["hub"]["rows"]["messages"] == 3


def test_backup_that_cannot_be_read_is_listed_with_its_problem(filled: Filled) -> None:
    name = backup(filled, "create", "--json").json["name"]
    manifest = Backups(filled.path).backups.path(name) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("manual", "manuel"))
    listed = backup(filled, "list")
    assert listed.code == 0
    assert "PROBLEM" in listed.out
    assert "manifest.json" in listed.out
    row = backup(filled, "list", "--json").json[0]
    assert row["name"] == name
    assert "manifest.json" in row["problem"]
    assert backup(filled, "show", name).code == 11


@pytest.mark.parametrize(
    ("settings", "code", "hint"),
    [
        ("recipients = ['age1x']", 20, "age-keygen"),
        (f"free_bytes_min = {1 << 60}", 13, "free"),
        ("directory = '/dev/null/x'", 13, "mount the disk"),
    ],
)
def test_errors_have_exit_codes_and_hints(
    filled: Filled, settings: str, code: int, hint: str
) -> None:
    filled.datadir.settings_file.write_text(f"[backup]\n{settings}\n")
    refused = backup(filled, "create", "--json")
    assert (refused.code, refused.out) == (code, "")
    assert hint in json.loads(refused.err)["hint"]


WITHOUT_LIBRARIES = """
import sys
for name in ("pyrage", "backports.zstd", "compression.zstd", "obstore", "falcon", "gevent"):
    sys.modules[name] = None
from appliance.cli import agentlip
agentlip()
"""


def test_light_install_lists_backups_and_says_what_creating_needs(filled: Filled) -> None:
    name = backup(filled, "create", "--json").json["name"]

    def light(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", WITHOUT_LIBRARIES, "backup", *arguments]
        return subprocess.run(
            command, cwd=filled.path, env=environment(), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    assert name in light("list").stdout
    assert name in light("show").stdout
    refused = light("create")
    assert refused.returncode == 21
    assert "pip install 'agentlip[appliance]'" in refused.stderr
    assert Backups(filled.path).backups.names() == [name]


def test_second_writer_is_refused(filled: Filled) -> None:
    with Backups(filled.path).backups.only_writer():
        refused = backup(filled, "create", "--json")
        assert refused.code == BackupRunning.exit_code
        assert backup(filled, "list").code == 0
    assert backup(filled, "create").code == 0


def test_names_are_not_paths(filled: Filled) -> None:
    for name in ("../..", "/", "20260101T000000Z-abcdef/..", ".", "x"):
        assert backup(filled, "show", name).code == 10


def test_directory_without_a_workspace_is_refused(tmp_path: Path) -> None:
    assert run("agentlip", "backup", "list", cwd=tmp_path).code == 1
    other = run("agentlip", "backup", "list", "--workspace", tmp_path, cwd=tmp_path)
    assert other.code == 1

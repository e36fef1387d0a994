"""`agentlip backup`: what it prints, and its exit codes."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from tests.support.clock import FakeClock
from tests.support.commands import CommandOutput, run
from tests.support.real_backups import Backups
from tests.support.scheduled_backup import verified
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
    asked = backup(filled, "create", "--json").json
    assert (asked["reason"], asked["messages"], asked["encrypted"]) == ("manual", 3, False)
    listed = backup(filled, "list").out.splitlines()
    assert listed[0].split() == [
        "NAME", "CREATED", "REASON", "SIZE", "VERIFIED", "ENCRYPTED"
    ]  # fmt: skip
    assert [line.split()[0] for line in listed[1:]] == [name, asked["name"]]
    shown = backup(filled, "show", name)
    assert "messages 3" in shown.out
    assert "db.sqlite3.zst" in shown.out
    manifest = backup(filled, "show", "--json").json
    assert manifest["verification"] is None
    assert manifest["stores"]["hub"]["rows"]["messages"] == 3


def test_command_of_the_schedule_makes_a_backup_and_reports_failures(filled: Filled) -> None:
    filled.datadir.settings_file.write_text(
        "[backup]\nfree_bytes_min = 0\nverify = false\n"
        "[[backup.targets]]\nname = 'disk'\nurl = 'file:///nonexistent/disk'\n"
    )
    (failure,) = backup(filled, "scheduled", "--create", "--json").json
    assert failure["phase"] == "upload"
    (made,) = backup(filled, "list", "--json").json
    assert (made["reason"], made["verified"]) == ("schedule", "never")


def test_schedule_finds_a_byte_that_changed_in_a_kept_backup(filled: Filled) -> None:
    kept = backup(filled, "create", "--json").json["name"]
    backup(filled, "create")
    verified(BackupDirectory(filled.datadir, BackupSettings()), kept, "good", 0)
    file = filled.datadir.backups / kept / "db.sqlite3.zst"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    (failure,) = backup(filled, "scheduled", "--recheck", "--json").json
    assert failure["code"] == "BACKUP_VERIFICATION_FAILED"
    assert kept in failure["error"]
    results = {row["name"]: row["verified"] for row in backup(filled, "list", "--json").json}
    assert results.pop(kept) == "bad"
    assert [*results.values()] == ["never"]


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


@pytest.fixture
def clock_set_back(filled: Filled) -> tuple[str, str]:
    """The names of a backup that was made while the clock was two days ahead, and of the next."""
    ahead = Backups(filled.path).create(FakeClock(int(time.time() * 1000) + 2 * 86_400_000)).name
    return ahead, str(backup(filled, "create", "--json").json["name"])


@pytest.mark.parametrize(
    "newest",
    [
        lambda filled: backup(filled, "show", "--json").json["name"],
        lambda filled: backup(filled, "list", "--json").json[-1]["name"],
        lambda filled: backup(filled, "restore", "--latest", "--plan", "--json").json["name"],
        lambda filled: backup(filled, "verify", "--json").json[0]["name"],
    ],
    ids=["show", "list", "restore", "verify"],
)
def test_newest_backup_is_not_the_one_with_a_time_in_the_future(
    filled: Filled, clock_set_back: tuple[str, str], newest: Callable[[Filled], str]
) -> None:
    ahead, after = clock_set_back
    assert ahead > after, "by its name it comes last"
    assert newest(filled) == after


def test_backup_from_the_future_is_not_newest_at_target(
    filled: Filled, clock_set_back: tuple[str, str], tmp_path: Path
) -> None:
    target = tmp_path / "disk"
    target.mkdir()
    filled.datadir.settings_file.write_text(
        "[backup]\nfree_bytes_min = 0\n"
        f"[[backup.targets]]\nname = 'disk'\nurl = 'file://{target}'\nallow_plain = true\n"
    )
    assert backup(filled, "upload").code == 0
    assert backup(filled, "fetch", "--latest", "--json").json["name"] == clock_set_back[1]

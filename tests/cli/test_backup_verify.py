"""`agentlip backup verify`: good backups, each kind of damage, keys, limits, and processes
killed."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pyrage
import pytest

from appliance.workspace.datadir import DataDir, pid_alive
from tests.support.commands import command, environment, run, succeed
from tests.support.damaged_backups import DamagedBackups, checksums
from tests.support.database_files import damage_table
from tests.support.other_versions import STEPS, OtherProgram
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow
GOOD, BAD, INCONCLUSIVE = 0, 17, 26


def filled(workspace: Path) -> None:
    with serve(workspace) as hub:
        _, topic = hub.channel_with_topic("general")
        sent = [hub.send(topic, f"message {number}") for number in range(25)]
        edited, deleted = (each["message"]["id"] for each in sent[:2])
        hub.http.patch(f"/api/v1/messages/{edited}", {"op": "edit", "content_raw": "new"})
        hub.http.patch(f"/api/v1/messages/{deleted}", {"op": "delete", "actor": "tester"})
        succeed("backup", "create", cwd=workspace)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> DamagedBackups:
    workspace = tmp_path_factory.mktemp("backup") / "w"
    filled(workspace)
    return DamagedBackups(workspace)


@pytest.fixture
def backups(original, tmp_path) -> DamagedBackups:
    return original.copy_to(tmp_path / "w")


def verify(backups: DamagedBackups, *arguments: str):
    return run("agentlip", "backup", "verify", "--json", *arguments, cwd=backups.workspace)


def assert_bad(backups: DamagedBackups, text: str) -> None:
    done = verify(backups)
    assert done.code == BAD, done
    (row,) = done.json
    assert row["result"] == "bad"
    assert any(text in problem for problem in row["problems"]), row
    recorded = backups.directory.verification(backups.name)
    assert recorded is not None
    assert recorded.result == "bad"
    assert_only_backups(backups)


def assert_only_backups(backups: DamagedBackups) -> None:
    assert sorted(os.listdir(backups.directory.root)) == backups.directory.names()


def test_verifying_a_good_backup_changes_only_its_recorded_result(backups):
    before = checksums(backups.workspace)
    files = {path: path.read_bytes() for path in backups.path.iterdir()}
    done = verify(backups, backups.name)
    assert done.code == GOOD, done
    assert done.json[0]["result"] == "good"
    assert done.json[0]["problems"] == []
    assert backups.directory.verification(backups.name).result == "good"
    assert checksums(backups.workspace) == before
    assert {path: path.read_bytes() for path in files} == files
    assert_only_backups(backups)


@pytest.mark.parametrize(
    ("store", "sql", "recount", "text"),
    [
        (
            "hub",
            "DROP TRIGGER prevent_message_delete;"
            "DELETE FROM messages WHERE content_raw = 'message 9'",
            False,
            "hub: messages has 24 rows; the manifest says 25",
        ),
        (
            "hub",
            "DROP TRIGGER prevent_event_delete;DELETE FROM events WHERE event_id = 10",
            True,
            "it has no message.created event",
        ),
        (
            "hub",
            "UPDATE messages SET content_raw = 'other' WHERE content_raw = 'message 9'",
            True,
            "differs from its events: text",
        ),
        ("hub", "UPDATE meta SET value = 'other' WHERE key = 'db_id'", False, "store_id"),
    ],
)
def test_backup_of_a_changed_store_is_bad(backups, store, sql, recount, text):
    backups.change(store, sql, recount=recount)
    assert_bad(backups, text)


def test_damaged_page_with_right_hashes_is_found(backups):
    def damage(workspace: Path) -> None:
        damage_table(DataDir(workspace).database("hub"), "topics")

    backups.remake(damage)
    assert_bad(backups, "hub: ")


def test_backup_of_an_older_schema_is_migrated_in_the_scratch_directory(backups, tmp_path):
    newer = OtherProgram(tmp_path / "newer", STEPS)
    before = (backups.path / "auth.sqlite3.zst").read_bytes()
    done = newer.agentlip("backup", "verify", "--json", cwd=backups.workspace)
    assert done.code == GOOD, done
    assert (backups.path / "auth.sqlite3.zst").read_bytes() == before
    assert_only_backups(backups)


def test_time_limit_and_full_disk_prove_nothing(backups):
    toml = backups.workspace / "agentlip.toml"
    for line, text in (
        ("seconds_max = 0.001", "longer than backup.seconds_max"),
        ("free_bytes_min = 900000000000000", "of free space"),
    ):
        toml.write_text(f"[backup]\n{line}\n")
        done = verify(backups)
        assert done.code == INCONCLUSIVE, done
        assert text in done.json[0]["problems"][0]
        assert backups.directory.verification(backups.name).result == "inconclusive"
        assert_only_backups(backups)
    toml.unlink()
    assert verify(backups).code == GOOD
    toml.write_text("[backup]\nseconds_max = 0.001\n")
    assert verify(backups).code == INCONCLUSIVE
    assert backups.directory.verification(backups.name).result == "good"


def test_encrypted_backup_is_verified_when_it_is_made(original, tmp_path):
    """With the public key only. Nobody else can open it, so a first check needs the secret key."""
    key, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    (tmp_path / "key").write_text(f"# a key\n{key}\n")
    (tmp_path / "other").write_text(f"{other}\n")
    backups = original.copy_to(tmp_path / "w")
    toml = backups.workspace / "agentlip.toml"
    toml.write_text(f'[backup]\nrecipients = ["{key.to_public()}"]\n')
    assert run("agentlip", "backup", "create", cwd=backups.workspace).code == 0
    assert backups.manifest.encrypted
    made = backups.directory.verification(backups.name)
    assert made.result == "good"
    assert verify(backups).code == INCONCLUSIVE
    assert backups.directory.verification(backups.name) == made
    wrong = verify(backups, "--identity", str(tmp_path / "other"))
    assert (wrong.code, wrong.json[0]["result"]) == (INCONCLUSIVE, "inconclusive")
    (backups.path / "verification.json").unlink()
    assert verify(backups).code == INCONCLUSIVE
    first = backups.directory.verification(backups.name)
    assert verify(backups).code == INCONCLUSIVE
    assert backups.directory.verification(backups.name) == first
    missing = verify(backups, "--identity", str(tmp_path / "nothing"))
    assert (missing.code, msgspec.json.decode(missing.err)["code"]) == (15, "BACKUP_KEY_REFUSED")
    assert verify(backups, "--identity", str(tmp_path / "key")).code == GOOD
    backups.flip(backups.manifest.files[0].name)
    assert verify(backups).code == BAD
    assert_only_backups(backups)


def test_killed_check_leaves_no_process_and_no_result(backups):
    before = checksums(backups.workspace)
    process = subprocess.Popen(
        command("agentlip", "backup", "verify"), cwd=backups.workspace, env=environment()
    )
    root = backups.directory.root

    def server() -> int:
        copies = list(root.glob(".partial-verify-*"))
        file = DataDir(copies[0]).read_server() if copies else None
        return 0 if file is None else file.pid

    try:
        pid = until(server, what="the copy is served")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not pid_alive(pid), what="the server ended with its parent")
    assert checksums(backups.workspace) == before
    assert backups.directory.verification(backups.name) is None
    assert len(backups.directory.names()) == 1
    assert run("agentlip", "backup", "create", cwd=backups.workspace).code == 0
    assert_only_backups(backups)


def fifo_for(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder_for(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("put", [fifo_for, folder_for])
def test_irregular_file_is_damage_and_delays_nothing(backups, put):
    put(backups.path / "db.sqlite3.zst")
    assert_bad(backups, "not a regular file")


def test_backup_that_declares_more_than_the_disk_has_is_inconclusive_at_once(backups):
    huge = 2**60
    stored = backups.path / "db.sqlite3.zst"
    os.truncate(stored, 2**40)  # a file with a hole, which takes no space, and hours to read

    def declare(manifest):
        files = tuple(
            msgspec.structs.replace(file, bytes=huge, stored_bytes=2**40)
            if file.name == stored.name
            else file
            for file in manifest.files
        )
        return msgspec.structs.replace(manifest, files=files)

    backups.seal(declare)
    done = verify(backups)
    assert done.code == INCONCLUSIVE
    assert "the disk has" in done.json[0]["problems"][0]

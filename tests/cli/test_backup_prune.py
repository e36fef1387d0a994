"""`agentlip backup prune`: lists, asks, removes; also when it is killed at any moment."""

import os
import random
import shutil
import signal
import subprocess
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from appliance.backup import manifest as manifests
from appliance.backup.manifest import Verification
from appliance.kernel.clock import iso
from tests.support.commands import command, environment, run, succeed
from tests.support.damaged_backups import DamagedBackups
from tests.support.until import until
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
ONE = "keep_last = 1\nkeep_hourly = 0\nkeep_daily = 0"


@pytest.fixture
def backups(tmp_path) -> DamagedBackups:
    """Twelve daily backups, of which the one from two days ago is good."""
    Filled(tmp_path / "w")
    succeed("backup", "create", cwd=tmp_path / "w")
    backups = DamagedBackups(tmp_path / "w")
    newest, manifest = backups.name, backups.manifest
    for days in range(1, 12):
        moment = datetime.now(UTC) - timedelta(days=days)
        name = f"{moment:%Y%m%dT%H%M%SZ}-{days:06x}"
        path = backups.directory.root / name
        shutil.copytree(backups.directory.path(newest), path)
        at = iso(int(moment.timestamp() * 1000))
        aged = msgspec.structs.replace(manifest, name=name, cut_at=at, created_at=at)
        (path / manifests.FILE).write_bytes(manifests.encode(aged))
    good = Verification(result="good", checked_at=iso(0), seconds=1.0, app_version="1")
    backups.directory.record(backups.directory.names()[-3], good)
    return backups


def prune(backups: DamagedBackups, *arguments: str, keep: str = ONE):
    (backups.workspace / "agentlip.toml").write_text(f"[backup]\n{keep}\n")
    return run("agentlip", "backup", "prune", *arguments, cwd=backups.workspace)


def test_removes_what_the_settings_do_not_keep_and_says_why(backups):
    names = backups.directory.names()
    listed = prune(backups, "--dry-run", "--json")
    assert listed.code == 0
    assert [row["action"] for row in listed.json] == ["remove"] * 9 + ["keep"] * 3
    assert backups.directory.names() == names
    refused = prune(backups)
    assert refused.code == 1
    assert "agentlip backup prune --yes" in refused.err
    assert backups.directory.names() == names
    done = prune(backups, "--yes")
    assert done.code == 0, done
    assert "newest verified backup" in done.out
    assert "number 1 of the newest 1, newer than the newest verified backup" not in done.err
    assert backups.directory.names() == names[-3:]
    assert sorted(os.listdir(backups.directory.root)) == names[-3:]
    assert prune(backups).code == 0


def test_killed_prune_leaves_whole_backups_only(backups):
    """Killed as soon as one or two backups are no longer listed, while their files are deleted."""
    names = backups.directory.names()
    (backups.workspace / "agentlip.toml").write_text(f"[backup]\n{ONE}\n")
    kept = set(names[-3:])
    for name in names[:-3]:  # many files make it last
        for number in range(300):
            (backups.directory.root / name / f"upload-{number}.json").write_text("{}")
    chance = random.Random(14)
    killed = 0
    for _ in range(100):
        if len(backups.directory.names()) == 3:
            break
        left = len(backups.directory.names()) - chance.randint(0, 1)
        process = subprocess.Popen(
            command("agentlip", "backup", "prune", "--yes"),
            cwd=backups.workspace,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        until(
            lambda left=left, process=process: (
                len(backups.directory.names()) < left or process.poll() is not None
            ),
            pause_seconds=0.0005,
        )
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        for listed in backups.directory.list():
            assert listed.manifest is not None, listed
            assert {file.name for file in listed.manifest.files} <= set(os.listdir(listed.path))
        assert kept <= set(backups.directory.names())
    assert killed
    assert run("agentlip", "backup", "prune", "--yes", cwd=backups.workspace).code == 0
    assert sorted(os.listdir(backups.directory.root)) == names[-3:]

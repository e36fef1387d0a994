"""`agentlip backup targets|upload|fetch` as processes, with a real S3 server that is killed too."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.workspace.datadir import DataDir
from tests.support.backup_targets import TargetBackups
from tests.support.commands import agentlip, command, environment
from tests.support.s3server import ACCESS, SECRET, S3Server
from tests.support.until import until
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
FILE_BYTES = 4_000
LARGE = {f"segment-{n:03}.zst.age": os.urandom(FILE_BYTES) for n in range(100)}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    Filled(path)
    return path


def configure(workspace: Path, s3: S3Server, *more: str, backup: str = "") -> None:
    """One target below a prefix of its own; `more` are further tables."""
    text = f"""
[backup]
free_bytes_min = 0
{backup}

[[backup.targets]]
name = "offsite"
url = "s3://backups/{workspace.parent.name}"
endpoint = "{s3.endpoint}"
"""
    (workspace / "agentlip.toml").write_text("\n".join([text, *more]))


def large_backup(workspace: Path) -> str:
    return TargetBackups.of(DataDir(workspace)).add(LARGE)


def files_at(s3: S3Server, workspace: Path) -> int:
    return len(s3.names(workspace.parent.name))


def list_whole(workspace: Path) -> list[str]:
    """The backups that the target has, each fetched and compared byte by byte."""
    seen = agentlip("backup", "targets", "--json", cwd=workspace, **KEYS).json[0]
    assert seen["state"] == "ok"
    for name in seen["backups"]:
        local = DataDir(workspace).backups / name
        aside = local.rename(local.with_name(f"aside-{name}"))
        fetched = agentlip("backup", "fetch", name, cwd=workspace, **KEYS)
        assert fetched.code == 0, fetched
        shutil.rmtree(aside)
    return list(seen["backups"])


def uploader(workspace: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("agentlip", "backup", "upload", "--json"),
        cwd=workspace,
        env=environment(**KEYS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_uploader_killed_at_random_moments_continues(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    name = large_backup(workspace)
    chance, kills = random.Random(14), 0
    while True:
        enough = files_at(s3, workspace) + chance.randint(1, 30)
        process = uploader(workspace)
        until(at_least(s3, workspace, enough, process))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
        # The server may still accept what was sent before the kill; the manifest is sent last.
        if present := list_whole(workspace):
            assert present == [name]
            break
        assert kills < 50
    process.communicate()
    assert kills >= 2
    final = agentlip("backup", "upload", "--json", cwd=workspace, **KEYS)
    assert final.code == 0, final
    assert list_whole(workspace) == [name]


def test_no_output_contains_a_key(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    large_backup(workspace)
    wrong = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET + "x"}
    for keys, codes in ((wrong, (0, 18, 22)), (KEYS, (0, 0, 0))):
        commands = (["targets"], ["upload"], ["fetch", "--latest"])
        for arguments, code in zip(commands, codes, strict=True):
            for flag in ([], ["--json"]):
                seen = agentlip("backup", *arguments, *flag, cwd=workspace, **keys)
                assert seen.code == code, seen
                assert SECRET not in seen.out + seen.err
                assert ACCESS not in seen.out + seen.err
    for path in workspace.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def at_least(
    s3: S3Server, workspace: Path, count: int, process: "subprocess.Popen[bytes]"
) -> Callable[[], bool]:
    """Whether so many files are at the target, or the process has ended."""
    return lambda: process.poll() is not None or files_at(s3, workspace) >= count

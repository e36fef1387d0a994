"""Workspaces are found safely, private files are private, and the lock has one holder."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.kernel.errors import StorageFull
from appliance.kernel.ownership import WorkspaceNotTrusted
from appliance.workspace import datadir as module
from appliance.workspace.datadir import (
    DataDir,
    HubRunning,
    WorkspaceNotFound,
    WriterLock,
    discover,
    pid_alive,
    read_lock,
)

ROOT = Path(__file__).parents[3]

# A process that on each word tries the lock and prints the result, and on the next releases it.
CONTENDER = """
import sys
from pathlib import Path
from appliance.workspace.datadir import DataDir, HubRunning, WriterLock
lock = WriterLock(DataDir(Path(sys.argv[1])), sys.argv[2])
print("here", flush=True)
while sys.stdin.readline():
    try:
        lock.acquire()
        print("won", flush=True)
    except HubRunning:
        print("lost", flush=True)
    if sys.stdin.readline():
        lock.release()
        print("done", flush=True)
"""


def workspace(path: Path) -> DataDir:
    (path / ".agentlip" / "locks").mkdir(parents=True)
    (path / ".agentlip" / "db.sqlite3").touch()
    return DataDir(path)


@pytest.fixture
def data(tmp_path):
    return workspace(tmp_path)


def start(code: str, *arguments: str, keeps_files: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=not keeps_files,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def contender(at: Path, name: str) -> subprocess.Popen[str]:
    process = start(CONTENDER, str(at), name)
    assert answer(process) == "here"
    return process


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=10)


# -- finding a workspace -------------------------------------------------------------------


def test_nearest_workspace_above_is_found(tmp_path):
    workspace(tmp_path)
    inner = workspace(tmp_path / "a")
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert discover(deep, home=tmp_path).workspace == inner.workspace


def test_search_ends_at_the_home_directory(tmp_path):
    workspace(tmp_path)
    home = tmp_path / "home"
    below = home / "project"
    below.mkdir(parents=True)
    with pytest.raises(WorkspaceNotFound):
        discover(below, home=home)
    workspace(home)
    assert discover(below, home=home).workspace == home


def test_search_ends_at_the_edge_of_the_file_system(tmp_path, monkeypatch):
    workspace(tmp_path)
    mounted = tmp_path / "mounted" / "deep"
    mounted.mkdir(parents=True)
    monkeypatch.setattr(module, "_device", lambda path: 2 if "mounted" in str(path) else 1)
    with pytest.raises(WorkspaceNotFound) as error:
        discover(mounted, home=tmp_path)
    assert error.value.details["searched"] == [str(mounted), str(mounted.parent)]


def test_ceiling_directories_and_those_above_are_not_searched(tmp_path, monkeypatch):
    workspace(tmp_path)
    ceiling = workspace(tmp_path / "clone").workspace
    below = ceiling / "tests"
    below.mkdir()
    monkeypatch.setenv("AGENTLIP_CEILING_DIRECTORIES", f"{tmp_path / 'other'}:{ceiling}")
    for start in (ceiling, below):
        with pytest.raises(WorkspaceNotFound) as error:
            discover(start, home=tmp_path)
        assert str(tmp_path) not in error.value.details["searched"]
    workspace(below)
    assert discover(below, home=tmp_path).workspace == below


def test_search_from_a_link_starts_at_its_target(tmp_path):
    real = workspace(tmp_path / "real")
    (tmp_path / "real" / "inside").mkdir()
    trap = tmp_path / "trap"
    trap.mkdir()
    workspace(trap)
    (trap / "link").symlink_to(tmp_path / "real" / "inside")
    assert discover(trap / "link", home=tmp_path).workspace == real.workspace


def give_away(path: Path, monkeypatch):
    """Makes `path` somebody else's: really as root, else by being somebody else ourselves."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


@pytest.mark.parametrize("part", ["", "db.sqlite3"])
def test_data_directory_of_another_user_is_refused(data, tmp_path, monkeypatch, part):
    give_away(data.dir / part, monkeypatch)
    with pytest.raises(WorkspaceNotTrusted) as error:
        discover(tmp_path, home=tmp_path)
    assert f"--workspace {tmp_path}" in error.value.hint


def test_link_made_by_another_user_is_refused(tmp_path, monkeypatch):
    workspace(tmp_path / "mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".agentlip").symlink_to(tmp_path / "mine" / ".agentlip")
    give_away(tmp_path / "a" / ".agentlip", monkeypatch)
    with pytest.raises(WorkspaceNotTrusted):
        discover(tmp_path / "a", home=tmp_path)


# -- private files --------------------------------------------------------------------------


def test_private_file_is_complete_and_readable_by_its_owner_only(data):
    before = os.umask(0)
    try:
        data.write_private(data.token_file, "first\n")
        data.write_private(data.token_file, "second\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(data.token_file.stat().st_mode) == 0o600
    assert data.read_token() == "second"
    assert sorted(path.name for path in data.dir.iterdir()) == ["db.sqlite3", "locks", "token"]


def test_private_file_replaces_a_link_and_keeps_its_target(data, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    data.token_file.symlink_to(elsewhere)
    data.write_private(data.token_file, "secret")
    assert elsewhere.read_text() == "untouched"
    assert not data.token_file.is_symlink()


def test_failed_write_keeps_the_old_file_and_removes_the_temporary_one(data, monkeypatch):
    data.write_private(data.token_file, "old")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match="No space left") as error:
        data.write_private(data.token_file, "new")
    assert error.value.details == {"reason": "ENOSPC", "file": "token"}
    assert data.read_token() == "old"
    assert not list(data.dir.glob(".token*"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port": "many"}', "\x00"])
def test_invalid_server_file_is_ignored(data, text):
    assert data.read_server() is None
    data.server_file.write_text(text)
    assert data.read_server() is None


# -- the lock ------------------------------------------------------------------------------


def test_exactly_one_of_twelve_concurrent_locks_succeeds(data, tmp_path):
    processes = [contender(tmp_path, f"n{i}") for i in range(12)]
    try:
        for _ in range(5):
            for process in processes:
                say(process, "go")
            answers = [answer(process) for process in processes]
            assert sorted(answers) == ["lost"] * 11 + ["won"]
            holder = read_lock(data).written
            assert holder is not None
            assert holder.pid == processes[answers.index("won")].pid
            for process in processes:
                say(process, "done")
            assert {answer(process) for process in processes} == {"done"}
            assert not data.lock_file.exists()
    finally:
        for process in processes:
            end(process)


def test_lock_of_a_killed_holder_is_free(data, tmp_path):
    process = contender(tmp_path, "first")
    say(process, "go")
    assert answer(process) == "won"
    with pytest.raises(HubRunning) as error:
        WriterLock(data, "second").acquire()
    assert error.value.details == {"pid": process.pid, "instance_id": "first"}
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    with WriterLock(data, "second") as lock:
        assert lock.intact()


@pytest.mark.parametrize("text", ["", "rubbish", '{"pid": 1, "instance_id": "other"}', "[" * 99])
def test_stale_lock_file_does_not_block(data, text):
    data.lock_file.write_text(text)
    assert not read_lock(data).held
    with WriterLock(data, "new"):
        written = json.loads(data.lock_file.read_text())
        assert written["pid"] == os.getpid()
        assert written["instance_id"] == "new"
        assert written["started_at"].endswith("Z")
    assert not data.lock_file.exists()


def test_holder_of_a_removed_lock_file_leaves_the_new_file(data):
    lock = WriterLock(data, "first")
    lock.acquire()
    data.lock_file.unlink()
    assert not lock.intact()
    with WriterLock(data, "second") as other:
        lock.release()
        assert other.intact()


FORKING = """
import os, sys
from pathlib import Path
from appliance.workspace.datadir import DataDir, WriterLock
lock = WriterLock(DataDir(Path(sys.argv[1])), "parent")
lock.acquire()
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    os.execv(sys.executable, [sys.executable, '-c', 'import signal; signal.pause()'])
os.read(ready, 1)
print(child, flush=True)
sys.stdin.readline()
"""


def test_started_program_does_not_keep_the_lock(data, tmp_path):
    parent = start(FORKING, str(tmp_path))
    child = int(answer(parent))
    try:
        assert read_lock(data).held
        parent.kill()
        parent.wait(timeout=10)
        assert pid_alive(child)
        with WriterLock(data, "next"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        end(parent)


def test_lock_is_held_without_content_on_a_full_disk(data, monkeypatch):

    monkeypatch.setattr(os, "pwrite", full)
    with WriterLock(data, "first"):
        assert read_lock(data) == module.LockView(exists=True, held=True, written=None)
        with pytest.raises(HubRunning):
            WriterLock(data, "second").acquire()

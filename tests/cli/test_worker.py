"""`agentlip worker` as processes, with the hooks that spawn installs."""

import json
import sqlite3
import subprocess
import time

import pytest

from tests.support.commands import agentlip, environment
from tests.support.repository import IDENTITY, commit, git, new_repository

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    return new_repository(tmp_path / "repository")


def worker(folder, *words, code=0, **env):
    output = agentlip("worker", *words, cwd=folder, **env)
    assert output.code == code, output
    return output


def claim(repository, glob):
    connection = sqlite3.connect(repository / ".worker-state" / "bus.db")
    now_ms = int(time.time() * 1000)
    row = (f"path:{glob}", "other", now_ms, now_ms + 60_000)
    connection.execute("INSERT OR REPLACE INTO task_claims VALUES (?, ?, ?, ?)", row)
    connection.commit()
    connection.close()


def test_task_from_spawn_to_merge(repository):
    assert "t is ASSIGNED" in worker(repository, "spawn", "t", "--description", "x" * 40).out
    folder = repository / "worktrees" / "t"
    worker(folder, "start")
    worker(folder, "heartbeat", "--status", "blocked", "--progress", "0.5")
    status = worker(folder, "status").out.splitlines()
    assert status[0].split() == ["TASK", "STATE", "AGE", "HEARTBEAT", "STATUS", "REVIEW", "SUMMARY"]
    assert status[1].split()[1::3] == ["WORKING", "blocked"]
    assert status[1].split()[-1] == "x" * 30
    commit(folder, {"t.txt": "1"})
    worker(folder / "..", "done", code=1)
    worker(folder, "done")
    worker(repository, "request-changes", "t", "a test, please")
    assert "REJECTED" in worker(repository, "status", "--state", "WORKING").out
    assert "a test, please" in worker(repository, "logs", "t").out
    worker(folder, "heartbeat")
    assert "requested changes: a test, please" in worker(folder, "show", "t").out
    worker(folder, "done", "--task", "t")
    worker(repository, "approve", "t", AGENTLIP_AGENT="ada")
    assert "already is APPROVED" in worker(repository, "approve", "t").out
    assert worker(repository, "logs", "t", "--jsonl").lines[-1]["from_agent"] == "ada"
    outcome = json.loads(worker(repository, "merge", "t", "--json").out)
    assert (outcome["state"], outcome["changed"]) == ("COMPLETED", True)
    assert (repository / "t.txt").exists()
    assert worker(repository, "list", "--jsonl").lines[0]["branch"] == "feat/t"
    assert "COMPLETED" in worker(repository, "stats").out
    shown = json.loads(worker(repository, "show", "t", "--json").out)
    assert [line["payload"]["to"] for line in shown["transitions"]] == [
        "ASSIGNED", "WORKING", "IN_REVIEW", "WORKING", "IN_REVIEW", "APPROVED", "COMPLETED",
    ]  # fmt: skip


def attempt(folder, *words):
    return subprocess.run(
        ["git", *words], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_hooks_of_git_refuse_claimed_paths_and_call_the_repositorys_own(repository, tmp_path):
    own = repository / ".git" / "hooks"
    for name in ("pre-commit", "commit-msg", "pre-push"):
        (own / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/called\n")
        (own / name).chmod(0o755)
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(repository, "remote", "add", "origin", str(tmp_path / "origin"))
    git(repository, "push", "--quiet", "origin", "main")
    (tmp_path / "called").unlink()
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    claim(repository, "src/**")
    (folder / "src").mkdir()
    (folder / "src" / "a").write_text("1")
    git(folder, "add", "src/a")
    refused = attempt(folder, "commit", "-m", "x")
    assert refused.returncode != 0
    assert "src/a is claimed by other" in refused.stderr
    assert not (tmp_path / "called").exists()
    git(folder, "commit", "--quiet", "--no-verify", "-m", "by a person")
    assert "git skipped pre-commit" in worker(repository, "logs", "t").out
    pushed = attempt(folder, "push", "origin", "feat/t")
    assert pushed.returncode != 0
    assert "src/a is claimed by other" in pushed.stderr
    commit(folder, {"docs/a": "1"}, hooks=True)
    assert (tmp_path / "called").read_text().split() == ["pre-commit", "commit-msg"]
    commit(repository, {"src/a": "1"}, hooks=True)
    assert (tmp_path / "called").read_text().split()[2:] == ["pre-commit", "commit-msg"]
    assert "src/a" in git(repository, "ls-files"), "the main checkout has no guard"


def test_override_lets_a_person_commit_and_is_published_once(repository, monkeypatch):
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    claim(repository, "src")
    monkeypatch.setenv("AGENTLIP_GUARD_OVERRIDE", "urgent")
    commit(folder, {"src": "1"}, hooks=True)
    commit(folder, {"docs": "1"}, hooks=True)
    commit(repository, {"base.txt": "2"})
    git(folder, "rebase", "--quiet", "main")
    logs = worker(repository, "logs", "t").out.splitlines()
    (override,) = (line for line in logs if "guard_override" in line)
    assert '"reason":"urgent","paths":["src"]' in override


def test_hooks_of_the_harness_block_with_exit_code_2(repository):
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    settings = json.loads((folder / ".claude" / "settings.local.json").read_text())
    for event, name in (("PreToolUse", "pre-tool-use"), ("Stop", "stop")):
        (hook,) = settings["hooks"][event][0]["hooks"]
        assert hook["command"].endswith(f" worker guard check {name}")
    claim(repository, "src")
    call = {"tool_name": "Write", "tool_input": {"file_path": "src/a"}, "cwd": str(folder)}
    check = ("worker", "guard", "check")
    refused = agentlip(*check, "pre-tool-use", cwd=folder, stdin=json.dumps(call).encode())
    assert refused.code == 2
    assert "src/a is claimed by other" in refused.err
    assert agentlip(*check, "stop", cwd=folder).code == 0
    worker(folder, "start")
    assert agentlip(*check, "stop", cwd=folder).code == 2
    assert agentlip(*check, "stop", cwd=repository).code == 0, "a person's session ends"

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


def test_folder_of_the_repository_does_not_replace_the_guard(repository, tmp_path):
    """Python looks for modules in the current folder first, and in those of PYTHONPATH."""
    for name in ("appliance", "agentlip"):
        commit(
            repository, {f"{name}/__init__.py": "", f"{name}/__main__.py": "raise SystemExit(0)"}
        )
    commit(repository, {"sitecustomize.py": "import os; os._exit(0)"})
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    claim(repository, "src")
    (folder / "src").write_text("1")
    git(folder, "add", "src")
    settings = json.loads((folder / ".claude" / "settings.local.json").read_text())
    (hook,) = settings["hooks"]["PreToolUse"][0]["hooks"]
    call = {"tool_name": "Write", "tool_input": {"file_path": "src"}, "cwd": str(folder)}
    for path in ("", ".", str(folder)):
        variables = {**environment(), "PYTHONPATH": path}
        refused = subprocess.run(
            ["git", "commit", "-m", "x"], cwd=folder, env=variables, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert (refused.returncode, "src is claimed by other" in refused.stderr) == (1, True)
        tool = subprocess.run(
            hook["command"], shell=True, cwd=folder, env=variables, input=json.dumps(call),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (tool.returncode, "src is claimed by other" in tool.stderr) == (2, True)


def submodule(folder, path, source, *, ignored):
    """A submodule at `path`, as the next commit brings it in."""
    git(
        folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), path
    )
    if ignored:
        git(folder, "config", "--file", ".gitmodules", f"submodule.{path}.ignore", "all")
        git(folder, "add", ".gitmodules")


WAYS = {
    "a rename out of the claimed path": lambda folder, source: git(
        folder, "mv", "src/a", "elsewhere"
    ),
    "a rename into the claimed path": lambda folder, source: git(folder, "mv", "base.txt", "src/b"),
    "a deletion": lambda folder, source: git(folder, "rm", "--quiet", "src/a"),
    "a file in place of the folder": lambda folder, source: (
        git(folder, "rm", "--quiet", "-r", "src"),
        (folder / "src").write_text("1"),
        git(folder, "add", "src"),
    ),
    "a gitlink above the claimed path": lambda folder, source: git(
        folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib"
    ),
    "a submodule": lambda folder, source: submodule(folder, "lib", source, ignored=False),
    "a submodule that .gitmodules hides": lambda folder, source: submodule(
        folder, "lib", source, ignored=True
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_commit_and_push_show_every_change_of_a_claimed_path(repository, tmp_path, way):
    commit(repository, {"src/a": "some text\n" * 20})
    source = new_repository(tmp_path / "source")
    git(tmp_path, "init", "--quiet", "--bare", "origin")
    git(repository, "remote", "add", "origin", str(tmp_path / "origin"))
    git(repository, "push", "--quiet", "origin", "main")
    worker(repository, "spawn", "t", "--no-fetch")
    folder = repository / "worktrees" / "t"
    git(folder, "config", "diff.renames", "copies")
    git(folder, "config", "diff.relative", "true")
    for glob in ("src/**", "lib/deep/**"):
        claim(repository, glob)
    WAYS[way](folder, source)
    refused = attempt(folder, "commit", "-m", "x")
    assert refused.returncode != 0
    assert "is claimed by other" in refused.stderr
    git(folder, "commit", "--quiet", "--no-verify", "-m", "x")
    assert "guard_override" in worker(repository, "logs", "t").out
    pushed = attempt(folder, "push", "origin", "feat/t")
    assert (pushed.returncode, "is claimed by other" in pushed.stderr) == (1, True)


def overrides(repository):
    lines = worker(repository, "logs", "t", "--jsonl").lines
    payloads = [line["payload"] for line in lines if line["type"] == "guard_override"]
    return [(payload["hook"], payload["paths"]) for payload in payloads]


def test_merges_are_refused_or_published(repository):
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    worker(folder, "start")
    git(repository, "checkout", "--quiet", "-b", "side")
    commit(repository, {"src/a": "by side"})
    git(repository, "checkout", "--quiet", "main")
    commit(repository, {"src/b": "accepted"})
    claim(repository, "src/**")
    git(folder, "merge", "--quiet", "main")  # the branch that collects work, by fast-forward
    commit(folder, {"docs": "1"}, hooks=True)
    commit(repository, {"src/c": "accepted too"})
    git(folder, "merge", "--quiet", "main")
    assert overrides(repository) == [], "what was accepted already is nobody's change"
    refused = attempt(folder, "merge", "side")
    assert (refused.returncode, "src/a is claimed by other" in refused.stderr) == (1, True)
    concluded = attempt(folder, "commit", "--no-edit")
    assert (concluded.returncode, "src/a is claimed by other" in concluded.stderr) == (1, True)
    git(folder, "merge", "--abort")
    merged = attempt(folder, "merge", "--no-verify", "side")
    assert (merged.returncode, "the bus has a notice" in merged.stderr) == (0, True)
    assert overrides(repository) == [("post-merge", ["src/a"])]
    git(folder, "reset", "--quiet", "--hard", "HEAD^")
    git(folder, "merge", "--quiet", "--no-verify", "--no-commit", "side")
    git(folder, "commit", "--quiet", "--no-verify", "--no-edit")
    assert overrides(repository)[1:] == [("post-commit", ["src/a"])]


@pytest.mark.parametrize("way", ["fast-forward", "plumbing", "am"])
def test_commit_without_hooks_is_published_at_done(repository, way):
    worker(repository, "spawn", "t")
    folder = repository / "worktrees" / "t"
    worker(folder, "start")
    git(repository, "checkout", "--quiet", "-b", "side")
    commit(repository, {"src/a": "by side"})
    git(repository, "checkout", "--quiet", "main")
    claim(repository, "src/**")
    if way == "am":
        patch = git(repository, "format-patch", "--stdout", "main..side")
        (repository.parent / "patch").write_text(patch + "\n")
        git(folder, "am", "--quiet", str(repository.parent / "patch"))
    else:
        git(folder, *(["merge", "side"] if way == "fast-forward" else ["reset", "--hard", "side"]))
    assert "the bus has a notice" in worker(folder, "done").err
    assert overrides(repository)[-1] == ("done", ["src/a"])

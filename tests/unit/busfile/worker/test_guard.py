"""The guard of path claims: globs, hooks of git and of the harness, overrides, the end of turns."""

import json

import pytest

from appliance.busfile.worker import commands, guard, reviews
from appliance.busfile.worker.git import Git
from appliance.busfile.worker.guard import PathClaimed, TurnNotOver
from tests.support.repository import commit, git


def claim(team, glob, owner="other", seconds=60):
    now_ms = team.clock.now_ms()
    row = (f"path:{glob}", owner, now_ms - 5_000, now_ms + seconds * 1000)
    team.rows("INSERT OR REPLACE INTO task_claims VALUES (?, ?, ?, ?)", *row)


def test_refusal_names_holder_age_and_how_to_ask(team):
    claim(team, "src/**")
    with pytest.raises(
        PathClaimed, match=r"src/a is claimed by other \(path:src/\*\*, 5 s ago\)"
    ) as caught:
        guard.check_paths(team.team, "t", ["src/a", "docs/a"], "pre-commit")
    assert "agentlip bus send release_request --to other" in caught.value.hint
    assert caught.value.details == {"paths": ["src/a"], "holder": "other"}


def test_push_is_checked_for_what_the_branch_changes(team):
    team.to("WORKING", files={"src/a": "1"})
    commit(team.repository, {"lib/b": "1"})
    git(team.folder(), "rebase", "--quiet", "main")
    head = git(team.folder(), "rev-parse", "HEAD")
    refs = f"refs/heads/feat/t {head} refs/heads/feat/t {'0' * 40}\n"
    claim(team, "lib/**")
    guard.check_push(team.team, Git(team.folder()), "t", refs)
    claim(team, "src/**")
    with pytest.raises(PathClaimed):
        guard.check_push(team.team, Git(team.folder()), "t", refs)
    guard.check_push(
        team.team, Git(team.folder()), "t", f"(delete) {'0' * 40} refs/heads/x {head}\n"
    )


@pytest.mark.parametrize(
    ("tool", "name", "path", "refused"),
    [
        ("Edit", "file_path", "src/a", True),
        ("Write", "file_path", "{folder}/src/a", True),
        ("NotebookEdit", "notebook_path", "./src/../src/a", True),
        ("Write", "file_path", "{repository}/src/a", True),
        ("Edit", "file_path", "docs/a", False),
        ("Edit", "file_path", "/etc/passwd", False),
        ("Read", "file_path", "src/a", False),
        ("Bash", "command", "rm src/a", False),
    ],
)
def test_tool_that_writes_a_claimed_file_is_refused(team, tool, name, path, refused):
    team.to("ASSIGNED")
    claim(team, "src/**")
    path = path.format(folder=team.folder(), repository=team.repository)
    call = {"tool_name": tool, "tool_input": {name: path}, "cwd": str(team.folder())}
    raw = json.dumps(call).encode()
    if refused:
        with pytest.raises(PathClaimed, match="src/a is claimed by other"):
            guard.check_tool(team.team, "t", raw)
    else:
        guard.check_tool(team.team, "t", raw)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("ASSIGNED", None),
        ("WORKING", "t is not handed in"),
        ("CONFLICTED", "t has conflicts"),
        ("IN_REVIEW", "t waits for its review"),
        ("APPROVED", None),
        ("FAILED", None),
    ],
)
def test_turn_ends_only_when_the_review_is_decided(team, state, reason):
    team.to(state)
    if reason is None:
        guard.check_stop(team.team, "t", 0)
        return
    with pytest.raises(TurnNotOver, match=f"{reason}.*1 of 3"):
        guard.check_stop(team.team, "t", 0)


def test_agent_is_kept_only_so_often_for_one_review(team):
    team.to("IN_REVIEW")
    for _ in range(reviews.STOPS_MAX):
        with pytest.raises(TurnNotOver):
            guard.check_stop(team.team, "t", 0)
    guard.check_stop(team.team, "t", 0)
    commands.request_changes(team.team, "t", "a test, please")
    guard.check_stop(team.team, "t", 0)
    assert team.state() == "WORKING"

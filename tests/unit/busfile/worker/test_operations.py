"""A kill between any two steps of a command is finished or undone by the next command."""

import pytest

from appliance.busfile.worker import commands, operations
from appliance.busfile.worker.operations import TaskBusy
from appliance.busfile.worker.spawning import SpawnOptions
from appliance.busfile.workers import TRANSITIONS
from tests.support.repository import commit, git
from tests.unit.busfile.worker.conftest import everything

pytestmark = pytest.mark.slow


def spawn(team):
    commands.spawn(team, "t", SpawnOptions())


def done(team):
    try:
        commands.done(team, "t")
    except commands.RebaseConflict:
        assert team.worker("t").state == "CONFLICTED"


def merge(team):
    commands.merge(team, "t")


def cancel(team):
    commands.cancel(team, "t", discard=True)


# command: state before, states after the recovery, how many times a kill is possible
TABLE = {
    "spawn": (spawn, None, {None}, 12),
    "done": (done, "WORKING", {"WORKING", "IN_REVIEW"}, 4),
    "done with a conflict": (done, "WORKING", {"WORKING", "CONFLICTED"}, 3),
    "merge": (merge, "APPROVED", {"APPROVED", "COMPLETED"}, 11),
    "cancel": (cancel, "WORKING", {"WORKING", "FAILED"}, 5),
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, row in TABLE.items() for n in range(row[3])]
)
def test_killed_command_is_finished_or_undone(team, name, number):
    command, before, possible, _ = TABLE[name]
    prepare(team, name, before)
    refs = git(team.repository, "for-each-ref")
    assert team.killed(command, number)
    team.team.recover()
    assert team.warnings == []
    assert team.state() in possible
    assert team.rows("SELECT * FROM x_operations") == []
    if name in ("spawn", "merge") and team.state() == before:
        assert git(team.repository, "for-each-ref") == refs, "undone"
    check_repository(team)
    command(team.team)
    assert team.state() == {
        "spawn": "ASSIGNED", "done": "IN_REVIEW", "done with a conflict": "CONFLICTED",
        "merge": "COMPLETED", "cancel": "FAILED",
    }[name]  # fmt: skip
    check_repository(team)
    check_history(team)


@pytest.mark.parametrize("name", TABLE)
def test_table_has_every_step(team, name):
    command, before, _, count = TABLE[name]
    prepare(team, name, before)
    assert not team.killed(command, count)


def prepare(team, name, before):

    if before is not None:
        conflict = "conflict" in name
        team.to(before, files={"base.txt": "ours\n"} if conflict else None)
        if name.startswith("done"):
            commit(team.repository, {"base.txt" if conflict else "new.txt": "theirs\n"})


def check_repository(team):
    """State and repository agree, and every worktree is complete."""
    has_worktree = str(team.folder()) in everything(team.repository)[1]
    assert has_worktree == team.folder().exists()
    assert has_worktree == (team.state() not in (None, "COMPLETED", "FAILED"))
    if team.state() == "COMPLETED":
        assert "feat/t" not in git(team.repository, "branch")
        assert (team.repository / "t.txt").exists()
    if has_worktree:
        assert (team.folder() / ".git").exists()
        assert team.team.git.at(team.folder()).is_rebasing() == (team.state() == "CONFLICTED")


def check_history(team):
    """The messages are a path in the table that ends in the state."""
    state = None
    query = (
        "SELECT payload ->> 'from', payload ->> 'to' FROM messages"
        " WHERE type = 'state_change' ORDER BY seq"
    )
    for before, after in team.rows(query):
        assert before == state
        assert after in TRANSITIONS[before]
        state = after
    assert state == team.state()


def test_spawn_that_was_killed_does_not_remove_what_others_made_meanwhile(team):
    assert team.killed(spawn, 1)  # before the branch is made
    git(team.repository, "branch", "feat/t", git(team.repository, "commit-tree", "-m", "x",
                                                 "HEAD^{tree}"))  # fmt: skip
    team.team.recover()
    assert "feat/t" in git(team.repository, "branch")


def test_task_is_locked_against_another_command(team, monkeypatch):
    monkeypatch.setattr(operations, "WAIT_SECONDS_MAX", 0)
    with team.team.lock("t"), pytest.raises(TaskBusy):
        spawn(team.open())


def test_problem_of_one_recovery_does_not_stop_the_others(team):
    team.to("ASSIGNED", "a")
    team.to("ASSIGNED", "b")
    for task, kind in (("a", "done"), ("b", "cancel")):
        facts = '{"folder": "/absent", "discard": false}'
        team.rows("INSERT INTO x_operations VALUES (?, ?, 'x', ?, 0)", task, kind, facts)
    team.rows("DELETE FROM workers WHERE task_id = 'a'")
    team.team.recover()
    assert team.warnings == ["a: there is no worker for the task a"]
    assert team.rows("SELECT task_id FROM x_operations") == [("a",)]

"""The commands of workers on a real repository, from spawn to merge."""

import pytest

from appliance.busfile import workers
from appliance.busfile.worker import commands, report, reviews
from appliance.busfile.worker.commands import RebaseConflict, RebaseRequired, WrongBranch
from appliance.busfile.worker.context import read_context
from appliance.busfile.worker.merging import ChangedSinceApproval, UncommittedChanges
from appliance.busfile.worker.spawning import AlreadyExists, SpawnFailed, SpawnOptions
from appliance.busfile.workers import InvalidTransition
from tests.support.repository import commit, git
from tests.unit.busfile.worker.conftest import everything

STATES = (
    "ASSIGNED", "WORKING", "CONFLICTED", "IN_REVIEW", "APPROVED", "COMPLETED", "FAILED",
)  # fmt: skip
COMMANDS = {
    "spawn": lambda team: commands.spawn(team, "t", SpawnOptions()),
    "start": lambda team: commands.start(team, "t"),
    "done": lambda team: commands.done(team, "t"),
    "approve": lambda team: commands.approve(team, "t"),
    "request-changes": lambda team: commands.request_changes(team, "t", "a test, please"),
    "merge": lambda team: commands.merge(team, "t"),
    "cancel": lambda team: commands.cancel(team, "t"),
    "fail": lambda team: commands.fail(team, "t", "no access"),
}
# What a command makes of a task in each state. "=": it is there already, "-": refused.
TABLE = """
                ASSIGNED  WORKING    CONFLICTED IN_REVIEW APPROVED  COMPLETED FAILED
spawn           =         =          =          =         =         -         ASSIGNED
start           WORKING   =          -          -         -         -         -
done            -         IN_REVIEW  -          =         -         -         -
approve         -         -          -          APPROVED  =         -         -
request-changes -         -          -          WORKING   WORKING   -         -
merge           -         -          -          -         COMPLETED =         -
cancel          FAILED    FAILED     FAILED     FAILED    FAILED    -         =
fail            FAILED    FAILED     FAILED     FAILED    FAILED    -         =
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
LIKE_CANCEL = {("fail", state) for state in STATES if state != "WORKING"}


@pytest.mark.parametrize("before", STATES)
def test_every_command_in_every_state_follows_the_table(team, before):
    """The commands that are refused or change nothing first, then each other one on a new task."""
    team.to(before)
    column = STATES.index(before) + 1
    for name, *cells in ROWS:
        wanted = cells[column - 1]
        if wanted == "=":
            outcome = COMMANDS[name](team.team)
            assert (outcome.changed, outcome.state) == (False, before)
            assert "already" in outcome.message
        elif wanted == "-":
            with pytest.raises((InvalidTransition, RebaseConflict)):
                COMMANDS[name](team.team)
        assert team.state() == before, name


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        (state, name, cell)
        for name, *cells in ROWS
        for state, cell in zip(STATES, cells, strict=True)
        if cell not in "=-" and (name, state) not in LIKE_CANCEL
    ],
)
def test_command_changes_the_state_once(team, before, name, after):
    team.to(before)
    outcome = COMMANDS[name](team.team)
    assert (outcome.changed, outcome.state, team.state()) == (True, after, after)
    again = COMMANDS[name](team.team)
    assert (again.changed, again.state) == (False, after)
    assert team.rows("SELECT count(*) FROM x_operations") == [(0,)]


def test_heartbeat_exists_before_a_task_becomes_working(team, monkeypatch):
    team.to("ASSIGNED")
    beats, transition = [], workers.transition

    def observed(connection, *rest, **named):
        beats.append(connection.execute("SELECT count(*) FROM heartbeats").fetchone()[0])
        return transition(connection, *rest, **named)

    assert team.rows("SELECT count(*) FROM heartbeats") == [(0,)]
    monkeypatch.setattr(workers, "transition", observed)
    commands.start(team.team, "t")
    assert (beats, team.state()) == ([1], "WORKING")


def test_spawn_makes_branch_worktree_context_and_row(team):
    outcome = commands.spawn(team.team, "t", SpawnOptions("fix it", branch_type="fix"))
    assert outcome.message == "t is ASSIGNED: branch fix/t from main, in worktrees/t"
    assert git(team.folder(), "branch", "--show-current") == "fix/t"
    assert read_context(team.folder()).task == "t"
    assert team.types() == ["state_change", "task_assign"]
    assert team.rows("SELECT branch, worktree, description FROM workers") == [
        ("fix/t", "worktrees/t", "fix it")
    ]
    assert "locked task t" in git(team.repository, "worktree", "list", "--porcelain")
    assert git(team.folder(), "config", "user.name") == "t"
    for folder in (team.repository, team.folder()):
        assert git(folder, "status", "--porcelain") == "", "our files are ignored"


def test_spawn_without_a_worktree_makes_the_branch_only(team):
    commands.spawn(team.team, "t", SpawnOptions(worktree=False))
    assert not team.folder().exists()
    commands.start(team.team, "t")
    with pytest.raises(WrongBranch, match="has the branch main, and the task has feat/t"):
        commands.done(team.team, "t", folder=team.repository)
    git(team.repository, "switch", "--quiet", "feat/t")
    commit(team.repository, {"t.txt": "1"})
    commands.done(team.team, "t", folder=team.repository)
    commands.approve(team.team, "t")
    assert "is checked out and stays" in commands.merge(team.team, "t").message


@pytest.mark.parametrize(
    ("obstacle", "error", "text"),
    [
        ("branch", AlreadyExists, "at the step check: the branch feat/t already exists"),
        ("folder", AlreadyExists, "at the step check: the folder .* already exists"),
        ("file", SpawnFailed, "at the step worktree: "),
        ("prefix", SpawnFailed, "at the step branch: git branch: "),
        ("origin", SpawnFailed, "at the step fetch: git fetch: "),
        ("gate", reviews.GateRefused, "at the step gate: false enable: exit code 1"),
    ],
)
def test_failed_spawn_names_its_step_and_leaves_nothing(team, obstacle, error, text):
    match obstacle:
        case "branch":
            git(team.repository, "branch", "feat/t")
        case "folder":
            team.folder().mkdir(parents=True)
        case "file":
            (team.repository / "worktrees").write_text("")
        case "prefix":
            git(team.repository, "branch", "feat")
        case "origin":
            git(team.repository, "remote", "add", "origin", "/absent")
        case "gate":
            git(team.repository, "config", "agentlip.reviewGate", "false")
    before = everything(team.repository)
    with pytest.raises(error, match=text) as caught:
        commands.spawn(team.team, "t", SpawnOptions())
    assert caught.value.details["step"] in text
    assert everything(team.repository)[:2] == before[:2]
    assert team.rows("SELECT 1 FROM workers UNION SELECT 1 FROM x_operations") == []
    if obstacle == "origin":
        assert commands.spawn(team.team, "t", SpawnOptions(fetch=False)).changed


def test_failed_task_continues_its_branch_and_its_files(team):
    team.to("FAILED")
    (team.folder() / "untracked").write_text("kept")
    head = git(team.folder(), "rev-parse", "HEAD")
    assert commands.spawn(team.team, "t", SpawnOptions()).changed
    assert git(team.folder(), "rev-parse", "HEAD") == head
    assert (team.folder() / "untracked").read_text() == "kept"
    commands.cancel(team.team, "t", discard=True)
    assert not team.folder().exists()
    commands.spawn(team.team, "t", SpawnOptions())
    assert git(team.folder(), "rev-parse", "HEAD") == head, "cancel keeps the branch"


def test_conflict_goes_back_to_the_agent_with_its_files(team):
    team.to("CONFLICTED")
    assert git(team.folder(), "status", "--porcelain", "-uno") == "UU base.txt"
    (payload,) = team.rows("SELECT payload FROM messages WHERE type = 'task_blocked'")
    assert "base.txt" in payload[0]
    with pytest.raises(RebaseConflict) as caught:
        commands.done(team.team, "t", skip_rebase=True)
    assert caught.value.details["files"] == ["base.txt"]
    (team.folder() / "base.txt").write_text("both\n")
    git(team.folder(), "add", "base.txt")
    with pytest.raises(RebaseConflict, match="no file is left") as caught:
        commands.done(team.team, "t")
    assert "rebase --continue" in caught.value.hint
    git(team.folder(), "-c", "core.editor=true", "rebase", "--continue")
    assert commands.done(team.team, "t").state == "IN_REVIEW"
    commands.approve(team.team, "t")
    commands.merge(team.team, "t")
    assert (team.repository / "base.txt").read_text() == "both\n"


def test_rebase_is_compulsory_before_a_conflict_was_resolved(team):
    team.to("WORKING")
    commit(team.repository, {"other.txt": "1"})
    with pytest.raises(RebaseRequired):
        commands.done(team.team, "t", skip_rebase=True)
    commands.done(team.team, "t")
    assert (team.folder() / "other.txt").exists()


def test_only_the_approved_commit_is_merged(team):
    team.to("APPROVED")
    commit(team.folder(), {"t.txt": "later"})
    with pytest.raises(ChangedSinceApproval):
        commands.merge(team.team, "t")
    commands.request_changes(team.team, "t")
    commands.done(team.team, "t")
    commands.approve(team.team, "t")
    assert commands.merge(team.team, "t").state == "COMPLETED"


def test_only_the_commit_under_review_is_approved(team):
    team.to("IN_REVIEW")
    reviewed = git(team.folder(), "rev-parse", "HEAD")
    commit(team.folder(), {"t.txt": "later"})
    with pytest.raises(
        ChangedSinceApproval, match=f"approves commit {reviewed[:12]}, not"
    ) as refused:
        commands.approve(team.team, "t", head=reviewed)
    assert "agentlip worker request-changes t" in refused.value.hint
    assert "has moved since `done`" in report.describe_task(team.team, "t").reason
    assert team.state() == "IN_REVIEW"
    commands.request_changes(team.team, "t", head=reviewed[:8])
    commands.done(team.team, "t")
    for command in (commands.approve, commands.request_changes):
        with pytest.raises(ChangedSinceApproval) as refused:
            command(team.team, "t", head=reviewed)
        assert refused.value.hint.startswith("git show ")
    assert commands.approve(team.team, "t").state == "APPROVED"


def test_commit_that_comes_during_the_merge_is_neither_merged_nor_lost(team):
    team.to("APPROVED")

    def reach(step):
        if step == "advance":
            commit(team.folder(), {"t.txt": "later"})

    outcome = commands.merge(team.open(reach), "t")
    assert "has new commits" in outcome.message
    assert git(team.repository, "show", "main:t.txt") == "work"
    assert git(team.repository, "show", "feat/t:t.txt") == "later"


def test_merge_ends_branch_and_worktree(team):
    team.to("APPROVED")
    (team.folder() / "left").write_text("1")
    with pytest.raises(UncommittedChanges):
        commands.merge(team.team, "t")
    (team.folder() / "left").unlink()
    commands.merge(team.team, "t")
    assert git(team.repository, "branch", "--format=%(refname:short)") == "main"
    assert not team.folder().exists()
    assert git(team.repository, "log", "-1", "--format=%s") == "Merge feat/t: the task"
    assert team.types()[-2:] == ["state_change", "task_done"]


def test_conflicting_merge_makes_the_task_working_again(team):
    team.to("APPROVED", files={"base.txt": "ours\n"})
    commit(team.repository, {"base.txt": "theirs\n"})
    with pytest.raises(commands.merging.MergeConflict) as caught:
        commands.merge(team.team, "t")
    assert caught.value.files == ["base.txt"]
    assert team.state() == "WORKING"
    assert team.types()[-1] == "review_result"


def test_cancel_keeps_uncommitted_changes_unless_they_are_discarded(team):
    team.to("WORKING")
    (team.folder() / "untracked").write_text("1")
    assert "uncommitted changes and stays" in commands.cancel(team.team, "t").message
    assert "uncommitted changes and stays" in commands.cancel(team.team, "t").message
    assert team.state() == "FAILED"
    assert not commands.cancel(team.team, "t", discard=True).changed
    assert not team.folder().exists()

"""A repository in a temporary folder, and a team that works on it."""

import os
import signal

import pytest

from appliance.busfile import file
from appliance.busfile.worker import commands
from appliance.busfile.worker.spawning import SpawnOptions
from tests.support.clock import FakeClock
from tests.support.repository import IDENTITY, commit, git, new_repository


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository(tmp_path):
    return new_repository(tmp_path / "repository")


class TeamFixture:
    """Commands on one repository, each like a process of its own."""

    def __init__(self, repository):
        self.repository = repository
        self.paths = file.BusPaths(repository)
        self.clock = FakeClock()
        self.warnings = []
        self.team = self.open()

    def open(self, reach=commands.ignore):
        connection = file.connect(self.paths)
        return commands.open_team(
            self.paths, connection, self.clock, warn=self.warnings.append, reach=reach
        )

    def folder(self, task="t"):
        return self.repository / "worktrees" / task

    def state(self, task="t"):
        row = self.team.connection.execute(
            "SELECT state FROM workers WHERE task_id = ?", (task,)
        ).fetchone()
        return row[0] if row else None

    def rows(self, query, *values):
        return self.team.connection.execute(query, values).fetchall()

    def types(self, task="t"):
        query = "SELECT type FROM messages WHERE correlation_id = ? ORDER BY seq"
        return [kind for (kind,) in self.rows(query, task)]

    def to(self, state, task="t", files=None):
        """Brings a new task to a state on the usual path; it changes `files`."""
        commands.spawn(self.team, task, SpawnOptions("the task"))
        if state == "ASSIGNED":
            return
        commands.start(self.team, task)
        commit(self.folder(task), files or {f"{task}.txt": "work\n"})
        if state == "CONFLICTED":
            commit(self.folder(task), {"base.txt": "ours\n"})
            commit(self.repository, {"base.txt": "theirs\n"})
            with pytest.raises(commands.RebaseConflict):
                commands.done(self.team, task)
        if state in ("IN_REVIEW", "APPROVED", "COMPLETED"):
            commands.done(self.team, task)
        if state in ("APPROVED", "COMPLETED"):
            commands.approve(self.team, task)
        if state == "COMPLETED":
            commands.merge(self.team, task)
        if state == "FAILED":
            commands.fail(self.team, task, "no access")
        assert self.state(task) == state

    def killed(self, command, number):
        """Runs a command in a process that is killed at the step of this number.

        Returns False if the command has fewer steps, and has ended.
        """
        pid = os.fork()
        if pid == 0:
            try:
                steps = iter(range(10_000))

                def reach(step):
                    if next(steps) == number:
                        os.kill(os.getpid(), signal.SIGKILL)

                command(self.open(reach))
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return True
        assert os.WEXITSTATUS(status) == 0, "the command failed"
        return False


@pytest.fixture
def team(repository):
    return TeamFixture(repository)


def everything(repository):
    """What git has: branches, worktrees, files of the working tree."""
    return (
        git(repository, "for-each-ref"),
        git(repository, "worktree", "list", "--porcelain"),
        git(repository, "status", "--porcelain"),
    )

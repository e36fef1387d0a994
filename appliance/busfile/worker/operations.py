"""Journals changes outside SQLite, so that a killed command is finished or undone.

A command writes its plan into `x_operations`, acts, and removes the row together with its last row
change. A row whose task is not locked belongs to a killed command.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from appliance.busfile.file import BusPaths, changing
from appliance.busfile.worker.context import check_task_id
from appliance.busfile.worker.git import Git
from appliance.busfile.workers import WorkerRow, require_worker
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.file_lock import file_lock

WAIT_SECONDS_MAX = 10.0  # for another command in the task
Kind = Literal["spawn", "done", "merge", "cancel"]


class TaskBusy(Unavailable):
    code = "TASK_BUSY"
    default_message = "another command works on this task"
    default_hint = "wait until that command ends, then run this one again"


class WorkerOperation(NamedTuple):
    """Work that a command has begun. `step` may or may not have been done."""

    task: str
    kind: Kind
    step: str
    facts: dict[str, Any]


class WorkerOutcome(msgspec.Struct, frozen=True):
    """`changed` is False if the task already was in the state that was wanted."""

    task: str
    state: str
    changed: bool
    message: str
    details: dict[str, Any] = {}


Recovery = Callable[["Team", Git, WorkerOperation], object]


class Team(msgspec.Struct):
    """The context for one workspace's commands: bus, repository, and caller.

    `warn` gets sentences about things that don't stop a command. `reach` is called before each step
    in an operation; tests end the process there.
    """

    paths: BusPaths
    connection: sqlite3.Connection
    clock: Clock
    actor: str
    recoveries: dict[Kind, Recovery]
    warn: Callable[[str], None]
    reach: Callable[[str], None]

    @property
    def git(self) -> Git:
        return Git(self.paths.workspace)

    def folder(self, task: str) -> Path:
        """Return where a task's worktree is."""
        return self.paths.workspace / "worktrees" / task

    def worker(self, task: str) -> WorkerRow:
        return require_worker(self.connection, check_task_id(task))

    @contextmanager
    def change(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """Yield a transaction in the file that is there now, and the time for its changes."""
        with changing(self.paths) as connection:
            yield connection, self.clock.now_ms()

    @contextmanager
    def lock(self, task: str) -> Iterator[Git]:
        """Lock the task for this command. Recover a killed command's work.

        The yielded git keeps the lock, so that a git that outlives a killed command does not meet
        the next one. Raises TaskBusy.
        """
        path = self.paths.workers / f"{check_task_id(task)}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        end = self.clock.monotonic() + WAIT_SECONDS_MAX
        busy = TaskBusy(f"another command works on {task}")
        with file_lock(path, busy, lambda: max(0.0, end - self.clock.monotonic())) as lock:
            git = Git(self.paths.workspace, (lock,))
            if operation := read_operation(self.connection, task):
                self.recoveries[operation.kind](self, git, operation)
            yield git

    def recover(self) -> None:
        """Recover all tasks that no command works on. Problems become warnings."""
        for (task,) in self.connection.execute("SELECT task_id FROM x_operations").fetchall():
            try:
                with self.lock(task):
                    pass
            except ApplianceError as error:
                self.warn(f"{task}: {error.message}")

    # -- the journal -----------------------------------------------------------------------------

    def begin(self, operation: WorkerOperation) -> None:
        with self.change() as (connection, now_ms):
            write_operation(connection, now_ms, operation)

    def proceed(self, operation: WorkerOperation, step: str) -> WorkerOperation:
        """Record that this step begins."""
        self.reach(f"before {step}")
        with self.change() as (connection, _):
            connection.execute(
                "UPDATE x_operations SET step = ? WHERE task_id = ?", (step, operation.task)
            )
        self.reach(step)
        return operation._replace(step=step)

    def end(self, task: str) -> None:
        with self.change() as (connection, _):
            remove_operation(connection, task)


def write_operation(
    connection: sqlite3.Connection, now_ms: int, operation: WorkerOperation
) -> None:
    task, kind, step, facts = operation
    connection.execute(
        "INSERT INTO x_operations (task_id, kind, step, facts, started_at_ms) VALUES (?,?,?,?,?)",
        (task, kind, step, msgspec.json.encode(facts).decode(), now_ms),
    )


def read_operation(connection: sqlite3.Connection, task: str) -> WorkerOperation | None:
    row = connection.execute(
        "SELECT task_id, kind, step, facts FROM x_operations WHERE task_id = ?", (task,)
    ).fetchone()
    if row is None:
        return None
    task_id, kind, step, facts = row
    return WorkerOperation(task_id, kind, step, msgspec.json.decode(facts))


def remove_operation(connection: sqlite3.Connection, task: str) -> None:
    connection.execute("DELETE FROM x_operations WHERE task_id = ?", (task,))

"""Which tasks need which others, and which are ready to be started."""

import sqlite3

from appliance.busfile.messages import check_name
from appliance.kernel.errors import Invalid

READY_MAX = 500
NEEDS_MAX = 100  # tasks that one task needs


class DependencyCycle(Invalid):
    code = "BUS_DEPENDENCY_CYCLE"
    default_message = "the tasks would need each other"
    default_hint = "remove one of these dependencies first"


def add(connection: sqlite3.Connection, task: str, needs: str) -> None:
    """Add a dependency: `task` is not ready before `needs` is done. Raises DependencyCycle."""
    check_name("task", task)
    check_name("needs", needs)
    if task == needs:
        raise DependencyCycle(f"{task} can't need itself")
    if path := _path(connection, needs, task):
        raise DependencyCycle(
            f"{task} can't need {needs}: " + " needs ".join(path), details={"path": path}
        )
    connection.execute("INSERT OR IGNORE INTO x_dependencies VALUES (?, ?)", (task, needs))
    if len(needs_of(connection, task)) > NEEDS_MAX:
        raise Invalid(f"{task} can need up to {NEEDS_MAX} tasks")


def remove(connection: sqlite3.Connection, task: str, needs: str) -> bool:
    query = "DELETE FROM x_dependencies WHERE task_id = ? AND needs = ?"
    return connection.execute(query, (task, needs)).rowcount > 0


def needs_of(connection: sqlite3.Connection, task: str) -> list[str]:
    query = "SELECT needs FROM x_dependencies WHERE task_id = ? ORDER BY needs"
    return [needs for (needs,) in connection.execute(query, (task,))]


def ready(connection: sqlite3.Connection, now_ms: int, limit: int = READY_MAX) -> list[str]:
    """Return tasks that nobody has claimed, that wait for nothing, and are not done, oldest first.

    A task is known by a worker, which must be ASSIGNED, or by dependencies. A task is done if the
    worker is COMPLETED, or, without a worker, if a message `task_done` correlates with the task.
    """
    rows = connection.execute(
        "WITH tasks AS (SELECT task_id, state, created_at_ms FROM workers UNION ALL"
        " SELECT DISTINCT task_id, 'ASSIGNED', 0 FROM x_dependencies"
        " WHERE task_id NOT IN (SELECT task_id FROM workers)),"
        " done AS (SELECT task_id FROM workers WHERE state = 'COMPLETED' UNION"
        " SELECT correlation_id FROM messages WHERE type = 'task_done' AND correlation_id"
        " NOT IN (SELECT task_id FROM workers))"
        " SELECT task_id FROM tasks WHERE state = 'ASSIGNED' AND task_id NOT IN"
        " (SELECT task_id FROM done)"
        " AND NOT EXISTS (SELECT 1 FROM x_dependencies d WHERE d.task_id = tasks.task_id"
        " AND d.needs NOT IN (SELECT task_id FROM done))"
        " AND NOT EXISTS (SELECT 1 FROM task_claims c WHERE c.task_id = tasks.task_id"
        " AND c.lease_until_ms > ?) ORDER BY created_at_ms, task_id LIMIT ?",
        (now_ms, limit),
    )
    return [task for (task,) in rows]


def _path(connection: sqlite3.Connection, start: str, end: str) -> list[str]:
    """Return the tasks from `start` to `end`, each needed by the one before; empty without a
    way."""
    before: dict[str, str] = {start: ""}
    pending = [start]
    while pending:
        task = pending.pop()
        for needs in needs_of(connection, task):
            if needs not in before:
                before[needs] = task
                pending.append(needs)
    path = [end] if end in before else []
    while path and before[path[0]]:
        path.insert(0, before[path[0]])
    return path

"""Calls that wait, as tasks: the client polls the state and holds no request open.

    2025-11-25  the client adds `task` to a call; tasks/get, tasks/result, tasks/list, tasks/cancel
    2026-07-28  extension io.modelcontextprotocol/tasks: a call that has to wait gets a task instead
                of a result; tasks/get, which includes the result, tasks/update, tasks/cancel

A task does nothing by itself: each request about a task tries the call again. So nothing is claimed
for a client that is gone. Tasks are in memory: after a restart, tasks are unknown, and the client
calls again.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.kernel.clock import HOUR_MS, Clock, iso
from appliance.kernel.ids import random_id
from appliance.kernel.lock import GreenletLock
from appliance.kernel.tool import Tool
from appliance.mcp.protocol import INVALID_PARAMS, INVALID_REQUEST, Refusal

OWNED_MAX = 20  # tasks per token; each may keep a result with about 1 MiB
TASKS_MAX = 100
TTL_MS_MAX = HOUR_MS  # also the longest wait
KEPT_MS = 300_000  # after the wait, for the result
POLL_MS = 1000

Outcome = Any  # a tool's result, or the ApplianceError that refuses the call


class ToolTask:
    """One call. `status`: working, completed (also if it was refused) or cancelled."""

    def __init__(
        self, owner: str, tool: Tool, arguments: Any, now_ms: int, ttl_ms: int | None
    ) -> None:
        wait_ms = int(arguments.wait * 1000)
        self.id = random_id()
        self.owner = owner
        self.tool = tool
        self.arguments = arguments
        self.status = "working"
        self.outcome: Outcome = None
        self.created_ms = self.updated_ms = now_ms
        self.ttl_ms = min(wait_ms + KEPT_MS if ttl_ms is None else ttl_ms, TTL_MS_MAX)
        self.deadline_ms = now_ms + min(wait_ms, self.ttl_ms)
        self.trying = GreenletLock()  # held by the request that tries the call


class Tasks:
    def __init__(self, clock: Clock) -> None:
        self.stopping = False  # no call has to wait any more
        self._clock = clock
        self._tasks: dict[str, ToolTask] = {}

    def create(self, owner: str, tool: Tool, arguments: Any, ttl_ms: int | None) -> ToolTask:
        """Create a task for a call with a `wait`. Raises Refusal if there are too many."""
        self._prune()
        if len(self.tasks_of(owner)) >= OWNED_MAX or len(self._tasks) >= TASKS_MAX:
            raise Refusal(INVALID_REQUEST, "too many tasks: call without a task, or try later")
        task = ToolTask(owner, tool, arguments, self._clock.now_ms(), ttl_ms)
        self._tasks[task.id] = task
        return task

    def tasks_of(self, owner: str) -> list[ToolTask]:
        return [task for task in self._tasks.values() if task.owner == owner]

    def find(self, owner: str, task_id: str) -> ToolTask:
        """Return the owner's task. Raises Refusal."""
        self._prune()
        task = self._tasks.get(task_id)
        if task is None or task.owner != owner:
            raise Refusal(INVALID_PARAMS, "Task not found")
        return task

    def cancel(self, task: ToolTask) -> bool:
        """Cancel the task; False if it has ended before."""
        if task.status != "working":
            return False
        self._end(task, "cancelled", None)
        return True

    def advance(self, task: ToolTask, seconds: float, attempt: Callable[[Any], Outcome]) -> None:
        """Try the call for up to `seconds`, after waiting as long while another request tries."""
        if task.status != "working" or not task.trying.acquire(timeout=seconds):
            return
        try:
            if task.status != "working" or self.stopping:
                return
            left = (task.deadline_ms - self._clock.now_ms()) / 1000
            outcome = attempt(with_wait(task.arguments, max(0.0, min(seconds, left))))
            over = self._clock.now_ms() >= task.deadline_ms
            if task.status == "working" and (over or not has_to_wait(task.tool, outcome)):
                self._end(task, "completed", outcome)
        finally:
            task.trying.release()

    def _prune(self) -> None:
        now_ms = self._clock.now_ms()
        for task in list(self._tasks.values()):
            if task.created_ms + task.ttl_ms <= now_ms:
                del self._tasks[task.id]

    def _end(self, task: ToolTask, status: str, outcome: Outcome) -> None:
        task.status, task.outcome, task.updated_ms = status, outcome, self._clock.now_ms()


def has_to_wait(tool: Tool, outcome: Outcome) -> bool:
    return tool.unfinished is not None and tool.unfinished(outcome)


def with_wait(arguments: Any, seconds: float) -> Any:
    return msgspec.structs.replace(arguments, wait=seconds)


def describe(task: ToolTask, unit: str = "") -> dict[str, Any]:
    """Return a task's fields. `unit` ends the duration names in the modern era."""
    return {
        "taskId": task.id,
        "status": task.status,
        "createdAt": iso(task.created_ms),
        "lastUpdatedAt": iso(task.updated_ms),
        f"ttl{unit}": task.ttl_ms,
        f"pollInterval{unit}": POLL_MS,
    }

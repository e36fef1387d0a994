"""Answers both eras' requests about tasks (`tasks.py`), and calls that become one."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from appliance.kernel.caller import is_there
from appliance.kernel.errors import ApplianceError
from appliance.kernel.tool import Tool
from appliance.mcp import protocol
from appliance.mcp.protocol import Refusal, RpcRequest, parameter
from appliance.mcp.results import render
from appliance.mcp.tasks import Outcome, Tasks, ToolTask, describe, has_to_wait, with_wait

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
TRY_SECONDS = 30.0

Answer = Callable[[RpcRequest, Any], dict[str, Any]]
Decode = Callable[[], Any]  # returns a call's arguments; raises Invalid


class TaskOptions(msgspec.Struct, frozen=True):
    """A call's `task`. `ttl`: milliseconds until it may be forgotten."""

    ttl: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class TaskRequests:
    def __init__(self, tasks: Tasks, attempt: Callable[[Tool, Decode, Any], Outcome]) -> None:
        """Keep the tasks, and `attempt(tool, decode, req)`, which calls a tool."""
        self._tasks = tasks
        self._attempt = attempt
        both: dict[str, Answer] = {"tasks/get": self._get, "tasks/cancel": self._cancel}
        self.modern = {**both, "tasks/update": self._update}
        self.legacy = {**both, "tasks/result": self._await, "tasks/list": self._list}

    # -- calls -----------------------------------------------------------------------------

    def begin(self, request: RpcRequest, tool: Tool, decode: Decode, req: Any) -> dict[str, Any]:
        """Begin a task that a 2025-11-25 client requested."""
        if tool.unfinished is None:
            raise Refusal(protocol.METHOD_NOT_FOUND, f"{tool.name} can't be called as a task")
        options: TaskOptions = parameter(request.params, "task", TaskOptions)
        try:
            arguments = decode()
        except ApplianceError as error:
            raise Refusal(protocol.INVALID_PARAMS, str(error)) from None
        task = self._tasks.create(req.context.principal.id, tool, arguments, options.ttl)
        return {"task": describe(task)}

    def call(self, tool: Tool, decode: Decode, req: Any) -> dict[str, Any]:
        """Return a 2026-07-28 call's result, or a task if the call has to wait."""
        outcome = self._attempt(tool, lambda: with_wait(decode(), 0.0), req)
        if not has_to_wait(tool, outcome) or (arguments := decode()).wait <= 0:
            return render(outcome)
        task = self._tasks.create(req.context.principal.id, tool, arguments, None)
        return {"resultType": "task", **describe(task, "Ms")}

    # -- requests about a task -------------------------------------------------------------

    def _find(self, request: RpcRequest, req: Any) -> ToolTask:
        if request.modern and not protocol.has_extension(request, EXTENSION):
            raise Refusal(
                protocol.MISSING_CAPABILITY,
                "Missing required client capability",
                {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
            )
        task_id = parameter(request.params, "taskId", str)
        return self._tasks.find(req.context.principal.id, task_id)

    def _get(self, request: RpcRequest, req: Any) -> dict[str, Any]:
        task = self._find(request, req)
        self._try(task, 0.0, req)
        return self._state(request, task)

    def _await(self, request: RpcRequest, req: Any) -> dict[str, Any]:
        """Return the call's result, once there is one."""
        task = self._find(request, req)
        while task.status == "working":
            self._try(task, TRY_SECONDS, req)
            if not is_there() or self._tasks.stopping:
                raise Refusal(protocol.INTERNAL_ERROR, "the call still waits: ask again")
        if task.status == "cancelled":
            raise Refusal(protocol.INVALID_REQUEST, "the task was cancelled")
        return {**render(task.outcome), "_meta": {RELATED: {"taskId": task.id}}}

    def _list(self, request: RpcRequest, req: Any) -> dict[str, Any]:
        if "cursor" in request.params:
            raise Refusal(protocol.INVALID_PARAMS, "there are no more pages")
        owned = self._tasks.tasks_of(req.context.principal.id)
        return {"tasks": [self._state(request, task) for task in owned]}

    def _update(self, request: RpcRequest, req: Any) -> dict[str, Any]:
        """Do nothing, because no tool asks for input."""
        self._find(request, req)
        return {}

    def _cancel(self, request: RpcRequest, req: Any) -> dict[str, Any]:
        task = self._find(request, req)
        cancelled = self._tasks.cancel(task)
        if request.modern:
            return {}
        if not cancelled:
            raise Refusal(protocol.INVALID_PARAMS, f"the task is {task.status} already")
        return self._state(request, task)

    def _try(self, task: ToolTask, seconds: float, req: Any) -> None:
        def attempt(arguments: Any) -> Outcome:
            return self._attempt(task.tool, lambda: arguments, req)

        self._tasks.advance(task, seconds, attempt)

    def _state(self, request: RpcRequest, task: ToolTask) -> dict[str, Any]:
        if not request.modern:
            refused = isinstance(task.outcome, ApplianceError)
            return describe(task) | ({"status": "failed"} if refused else {})
        result = {"result": render(task.outcome)} if task.status == "completed" else {}
        return describe(task, "Ms") | result

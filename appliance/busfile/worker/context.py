"""Finds a folder's task: `.worker-ctx.json` in its worktree, and the form of task ids."""

import os
import re
from pathlib import Path

import msgspec

from appliance.kernel.errors import Invalid, Missing
from appliance.kernel.ownership import SMALL_FILE_BYTES_MAX, open_own
from appliance.kernel.whole_file import write_whole

FILE_NAME = ".worker-ctx.json"
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BRANCH_TYPE = re.compile(r"[a-z][a-z0-9-]{0,15}")


AGENT = "AGENTLIP_AGENT"  # names the agent outside worktrees


class InvalidTaskId(Invalid):
    code = "INVALID_TASK_ID"
    default_message = "the task id can't be used in file and branch names"
    default_hint = (
        "use up to 64 letters, digits, '.', '_' and '-', and begin with a letter or digit"
    )


class NotInWorktree(Missing):
    code = "NOT_IN_WORKTREE"
    default_message = f"neither this folder nor a parent folder has a file {FILE_NAME}"
    default_hint = "run the command in the task's worktree, or name the task with --task TASK"


class ContextRefused(Invalid):
    code = "CONTEXT_REFUSED"
    default_message = f"the file {FILE_NAME} is a link, or damaged"
    default_hint = f"remove {FILE_NAME}; agentlip worker spawn TASK writes it again"


class TaskContext(msgspec.Struct, frozen=True):
    """`workspace`: the folder with the bus, as an absolute path."""

    task: str
    workspace: str
    branch: str


def agent_name() -> str | None:
    """Return the agent's name: the task of the worktree around the current folder, or else that in
    AGENTLIP_AGENT."""
    context = read_context(Path.cwd())
    return context.task if context else os.environ.get(AGENT) or None


def check_task_id(task: str) -> str:
    """Return the id, if it can also be a part of a branch's name. Raises InvalidTaskId."""
    if not TASK_ID.fullmatch(task) or ".." in task or task.endswith((".", ".lock")):
        raise InvalidTaskId(f"{task[:80]!r} is not a task id")
    return task


def branch_of(task: str, branch_type: str) -> str:
    if not BRANCH_TYPE.fullmatch(branch_type):
        raise Invalid(
            f"{branch_type[:80]!r} is not a branch type",
            hint="use up to 16 lower-case letters, digits and '-', such as feat or fix",
        )
    return f"{branch_type}/{check_task_id(task)}"


def write_context(folder: Path, context: TaskContext) -> None:
    """Replace an existing file or link, and never follow a link."""
    write_whole(folder / FILE_NAME, msgspec.json.format(msgspec.json.encode(context)) + b"\n")


def read_context(folder: Path) -> TaskContext | None:
    """Return the context for `folder` or for the nearest folder above; None if there is none.

    Raises ContextRefused for a link, and for anything else that `write_context` doesn't write.
    """
    for directory in (folder, *folder.parents):
        path = directory / FILE_NAME
        if path.is_symlink() or path.exists():
            return _read(path)
    return None


def _read(path: Path) -> TaskContext:
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                raise ContextRefused(f"{path} is refused: it belongs to another user")
            raw = file.read(SMALL_FILE_BYTES_MAX)
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else error.strerror or str(error)
        raise ContextRefused(f"{path} is refused: {reason}") from None
    try:
        context = msgspec.json.decode(raw, type=TaskContext)
        check_task_id(context.task)
    except (msgspec.DecodeError, InvalidTaskId) as error:
        raise ContextRefused(f"{path} is refused: {error}") from None
    return context

"""Guards path claims: which changed paths somebody else has claimed.

A claim on `path:GLOB` counts while its lease runs. Paths are relative to a checkout's root, so a
claim covers the file in all worktrees. A person overrides the guard by the environment variable
AGENTLIP_GUARD_OVERRIDE with a reason, and the override is published: for a commit, after the
commit, also with `git commit --no-verify`. No refusal names the variable, because models would set
it.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from appliance.busfile import workers
from appliance.busfile.claims import PATH, BusClaim, path_claims
from appliance.busfile.file import sleep
from appliance.busfile.globs import matches, overlap
from appliance.busfile.reviews import latest_review
from appliance.busfile.worker import reviews
from appliance.busfile.worker.git import Git
from appliance.busfile.worker.operations import Team
from appliance.busfile.worker.spawning import target_of
from appliance.kernel.errors import Conflict, Invalid

OVERRIDE = "AGENTLIP_GUARD_OVERRIDE"
UNCHECKED = "none: git skipped pre-commit, or the path was claimed after it"
Hook = Literal["pre-commit", "pre-merge-commit", "post-commit", "post-merge", "pre-push",
               "pre-tool-use", "stop"]  # fmt: skip
SHOWN_MAX = 5
WAIT_SECONDS = 540.0  # until a decision; a model's turn costs more than a longer wait
POLL_SECONDS = 0.5
# Fields in a tool's input that name the changed file.
PATH_FIELDS = ("file_path", "notebook_path", "path")
WRITING_TOOLS = re.compile(r"edit|write|patch|notebook|create|delete|move", re.IGNORECASE)


class PathClaimed(Conflict):
    code = "PATH_CLAIMED"
    default_message = "another agent has claimed a path in this change"
    default_hint = (
        "leave the path unchanged until the claim ends, or send a request to the "
        "holder: agentlip bus send release_request --to HOLDER"
    )


class TurnNotOver(Conflict):
    code = "TURN_NOT_OVER"
    default_message = "the task's review is not decided, so the agent goes on"
    default_hint = "agentlip worker show TASK"


def check_paths(team: Team, agent: str, paths: Sequence[str], hook: str) -> None:
    """Raise PathClaimed, unless a person overrides the guard."""
    now_ms = team.clock.now_ms()
    refused = _claimed_by_others(team, agent, paths)
    if not refused:
        return
    if reason := os.environ.get(OVERRIDE):
        if hook != "pre-commit":  # `report_commit` knows whether there is a commit
            _publish_override(team, agent, refused, hook, reason)
        return
    lines = [
        f"{path} is claimed by {claim.claimed_by} ({claim.task_id},"
        f" {max(0, now_ms - claim.claimed_at_ms) // 1000} s ago)"
        for path, claim in sorted(refused.items())[:SHOWN_MAX]
    ]
    holder = next(iter(refused.values())).claimed_by
    raise PathClaimed(
        "; ".join(lines),
        details={"paths": sorted(refused), "holder": holder},
    )


def _claimed_by_others(team: Team, agent: str, paths: Sequence[str]) -> dict[str, BusClaim]:
    return {
        path: claim
        for claim in path_claims(team.connection, team.clock.now_ms())
        if claim.claimed_by != agent
        for path in paths
        if (overlap if path.endswith("/") else matches)(claim.task_id.removeprefix(PATH), path)
    }


def _publish_override(team: Team, agent: str, paths: Iterable[str], hook: str, reason: str) -> None:
    payload = {"hook": hook, "reason": reason, "paths": sorted(paths)[:SHOWN_MAX]}
    with team.change() as (connection, now_ms):
        workers.announce(connection, now_ms, "guard_override", agent, payload, actor=agent)


# -- what the hooks check ------------------------------------------------------------------------


def check_commit(team: Team, git: Git, agent: str, hook: Hook = "pre-commit") -> None:
    """Check the staged files, in `pre-commit` and `pre-merge-commit`."""
    if hook == "pre-merge-commit" or git.path_of("MERGE_HEAD").exists():
        staged = _brought_in(git, "HEAD")
    else:
        staged = git.names("diff", "--cached", keep_index=True)
    check_paths(team, agent, staged, "pre-commit")


def report_commit(team: Team, git: Git, agent: str, hook: Hook = "post-commit") -> None:
    """Announce in `post-commit` and `post-merge` that new files override claims."""
    if hook == "post-merge" or git.commit_of("HEAD^2"):
        committed = _brought_in(git, "ORIG_HEAD" if hook == "post-merge" else "HEAD^")
    else:
        committed = git.names("diff-tree", "--root", "--no-commit-id", "-r", "HEAD")
    report_paths(team, agent, committed, hook)


def report_paths(team: Team, agent: str, paths: Sequence[str], hook: str) -> None:
    if refused := _claimed_by_others(team, agent, paths):
        reason = os.environ.get(OVERRIDE) or UNCHECKED
        _publish_override(team, agent, refused, hook, reason)
        team.warn("other agents have claimed paths in this commit; the bus has a notice")


def _brought_in(git: Git, base: str) -> list[str]:
    """Return the paths that a merge into `base` changes, without the collecting branch's
    changes."""
    target = target_of(git, git.branch()).tip
    changed = [git.names("diff", "--cached", tip, keep_index=True) for tip in (base, target)]
    return sorted(set(changed[0]) & set(changed[1]))


def check_push(team: Team, git: Git, agent: str, lines: str) -> None:
    """Check in `pre-push` the pushed commits' changes, compared with their target branch."""
    for line in lines.splitlines():
        local = line.split(" ")[1] if line.count(" ") == 3 else ""
        if local.strip("0"):  # all zeros: a branch is deleted
            base = target_of(git, git.branch()).tip
            check_paths(team, agent, git.names("diff", f"{base}...{local}"), "pre-push")


def check_tool(team: Team, agent: str, raw: bytes) -> None:
    """Check the file that a tool is about to change: an agent harness's `PreToolUse`."""
    call = read_hook_input(raw)
    fields = call.get("tool_input")
    if not isinstance(fields, dict) or not WRITING_TOOLS.search(str(call.get("tool_name"))):
        return
    folder = Path(str(call.get("cwd") or Path.cwd()))
    named = [str(fields[name]) for name in PATH_FIELDS if fields.get(name)]
    paths = [_in_checkout(team, (folder / name).resolve()) for name in named]
    check_paths(team, agent, [path for path in paths if path], "PreToolUse")


def check_stop(team: Team, task: str, wait_seconds: float = WAIT_SECONDS) -> None:
    """Wait for the review's decision, for some time, then send the agent back to work: an agent
    harness's `Stop`. After STOPS_MAX times the turn may end. Raises TurnNotOver."""
    end = team.clock.monotonic() + wait_seconds
    while team.clock.monotonic() < end and team.worker(task).state == "IN_REVIEW":
        sleep(POLL_SECONDS)
    reason = _unfinished(team, task)
    if reason is None:
        return
    with team.change() as (connection, _):
        stops = reviews.count_stop(connection, task)
    if 0 < stops <= reviews.STOPS_MAX:
        message = f"{reason} ({stops} of {reviews.STOPS_MAX})"
        raise TurnNotOver(message, details={"task": task})


def _unfinished(team: Team, task: str) -> str | None:
    """Return why the agent has to go on; None if its turn may end."""
    state = team.worker(task).state
    review = latest_review(team.connection, task)
    if state == "IN_REVIEW":
        return f"{task} waits for its review: look again with agentlip worker show {task}"
    if state == "CONFLICTED":
        return f"{task} has conflicts: resolve them, git rebase --continue, agentlip worker done"
    if state != "WORKING":
        return None
    if review and review.decision == "rejected":
        return f"changes were requested: {review.comment or 'without a comment'}"
    return f"{task} is not handed in: agentlip worker done, or agentlip worker fail REASON"


def read_hook_input(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Invalid(f"the hook's input is not a JSON object: {error}") from None


def _in_checkout(team: Team, path: Path) -> str | None:
    """Return the path from its checkout's root; None outside the repository."""
    worktrees = team.paths.workspace / "worktrees"
    if path.is_relative_to(worktrees):
        return "/".join(path.relative_to(worktrees).parts[1:])
    top = team.git.top()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else None

"""Installs the guard in one worktree: Git hooks, and agent harness hooks.

Git gets a hooks folder for this worktree only (`core.hooksPath` in the worktree's settings). Each
hook calls the replaced hook, so existing hooks keep working.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from appliance.busfile.worker.git import Git
from appliance.kernel.errors import ApplianceError, Conflict
from appliance.kernel.whole_file import write_whole

FOLDER = "agentlip-hooks"
CHECKED = ("pre-commit", "pre-merge-commit", "pre-push", "post-commit", "post-merge")
# Hooks that run in a worktree. All others belong to servers, or run too often for a script.
PASSED_ON = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "prepare-commit-msg", "commit-msg",
    "pre-rebase", "post-checkout", "post-rewrite",
)  # fmt: skip
SCRIPT = """#!/bin/sh
# Written by: agentlip worker guard install. Checks path claims, then calls your own hook.
name=${{0##*/}}
original={original}/$name
if [ "$name" = pre-push ]; then
    refs=$(cat)
    printf '%s\\n' "$refs" | {program} worker guard check pre-push || exit $?
    [ -x "$original" ] || exit 0
    printf '%s\\n' "$refs" | "$original" "$@"
    exit $?
fi
case $name in
pre-commit | pre-merge-commit) {program} worker guard check "$name" </dev/null || exit $? ;;
post-commit | post-merge)  # a rebase repeats commits that were checked
    [ -d "$(git rev-parse --git-path rebase-merge)" ] ||
        {program} worker guard check "$name" </dev/null ;;
esac
[ -x "$original" ] || exit 0
exec "$original" "$@"
"""
HARNESS_FILE = ".claude/settings.local.json"
# Each hook's name here, and the seconds after which the harness ends the hook.
HARNESS_HOOKS = {"PreToolUse": ("pre-tool-use", 60), "Stop": ("stop", 600)}


class GuardNotInstalled(Conflict):
    code = "GUARD_NOT_INSTALLED"
    default_message = "the guard can't be installed in this checkout"
    default_hint = "agentlip worker guard install, after the message's cause is removed"


def install(git: Git, task: str | None, warn: Callable[[str], None]) -> None:
    """Install the guard in this checkout, even if present, and lock a worktree, so that `git
    worktree remove` needs force. `task`: the author's name."""
    _install_git_hooks(git, task)
    git.attempt("worktree", "lock", "--reason", f"task {task}" if task else "guard", ".")
    try:
        _install_harness_hooks(git)
    except (ApplianceError, OSError) as error:
        warn(f"the agent harness gets no hooks: {error}")


def exclude(git: Git, lines: Sequence[str]) -> None:
    """Have Git ignore files that we write, without changing the repository's own files."""
    path = git.path_of("info/exclude")
    text = path.read_text("utf-8") if path.exists() else ""
    missing = [line for line in lines if line not in text.splitlines()]
    if missing:
        path.parent.mkdir(exist_ok=True)
        separator = "" if text.endswith("\n") or not text else "\n"
        content = text + separator + "\n".join(missing) + "\n"
        write_whole(path, content.encode(), private=False)


def _install_git_hooks(git: Git, task: str | None) -> None:
    if git.attempt("config", "--get", "core.worktree").output.strip():
        raise GuardNotInstalled("git's setting core.worktree can't be combined with the guard")
    git.run("config", "extensions.worktreeConfig", "true")
    folder = git.path_of(FOLDER)  # in the worktree's part of .git, removed with the worktree
    folder.mkdir(exist_ok=True)
    script = SCRIPT.format(original=_original(git, folder), program=program()).encode()
    for name in (*CHECKED, *PASSED_ON):
        write_whole(folder / name, script, private=False)
        (folder / name).chmod(0o755)
    git.run("config", "--worktree", "core.hooksPath", str(folder))
    if task is not None:
        git.run("config", "--worktree", "user.name", task)


def _original(git: Git, folder: Path) -> str:
    """Return the folder with the hooks that run without the guard, as a word for the shell."""
    git.attempt("config", "--worktree", "--unset-all", "core.hooksPath")
    setting = git.attempt("config", "--type=path", "--get", "core.hooksPath").output.strip()
    hooks = git.folder / setting if setting else git.path_of("hooks")
    if hooks.resolve() == folder:
        raise GuardNotInstalled("the guard's own hooks are the repository's hooks")
    return shlex.quote(str(hooks))


def _install_harness_hooks(git: Git) -> None:
    if git.attempt("ls-files", "--error-unmatch", HARNESS_FILE).code == 0:
        raise GuardNotInstalled(f"{HARNESS_FILE} belongs to the repository")
    path = git.folder / HARNESS_FILE
    settings: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    hooks = settings.setdefault("hooks", {})
    for event, (name, seconds) in HARNESS_HOOKS.items():
        command = f"{program()} worker guard check {name}"
        entry = {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}
        if entry not in hooks.setdefault(event, []):
            hooks[event].append(entry)
    path.parent.mkdir(exist_ok=True)
    write_whole(path, msgspec.json.format(msgspec.json.encode(settings)) + b"\n", private=False)


def program() -> str:
    """Return this program as words for the shell, also where `agentlip` is not on the PATH.
    Neither the current folder nor PYTHONPATH can replace the program (-P and -E)."""
    package = __name__.partition(".")[0]
    return f"{shlex.quote(sys.executable)} -EPm {package}"

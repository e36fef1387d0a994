"""Git through its command line, with time limits. Nothing here knows about tasks.

Conflicts are read from exit codes and `git status`, never from texts, and are never resolved.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from appliance.kernel.errors import Conflict, Invalid, Unavailable

LOCAL_SECONDS_MAX = 60.0
LONG_SECONDS_MAX = 600.0  # worktrees, rebases and fetches in large repositories
MESSAGE_CHARACTERS_MAX = 500
NO_COMMIT = "0" * 40
# Nothing that outlives the command, because a command inherits its task's lock.
ALONE = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.fsmonitor=false")
# A git hook runs us with these variables, which would redirect commands to the hook's repository.
OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
INDEX = "GIT_INDEX_FILE"
NAMES = ("--raw", "-z", "--no-renames", "--no-relative", "--ignore-submodules=dirty")
WITHOUT_QUESTIONS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "LC_ALL": "C",
}


class GitFailed(Conflict):
    code = "GIT_FAILED"
    default_message = "a git command failed"
    default_hint = "correct the error that git reports, then run the same command again"


class GitUnavailable(Unavailable):
    code = "GIT_UNAVAILABLE"
    default_message = "git can't be started, or took too long"
    default_hint = "install git 2.38 or newer, and check that the repository's disk responds"


class NotARepository(Invalid):
    code = "NOT_A_REPOSITORY"
    default_message = "the workspace is not a git repository with a commit"
    default_hint = "run git init and commit something, or name the workspace with --workspace DIR"


class BranchDiverged(Conflict):
    code = "BRANCH_DIVERGED"
    default_message = "the branch and its copy at origin have diverged"
    default_hint = "rebase or merge the branch by hand, then run the same command again"


class MergeConflict(Conflict):
    code = "MERGE_CONFLICT"
    default_message = "the branch conflicts with the integration branch"
    default_hint = "the agent rebases with agentlip worker done, in the task's worktree"

    def __init__(self, message: str, files: list[str]) -> None:
        self.files = files
        super().__init__(message, details={"files": files})


class GitResult(NamedTuple):
    code: int
    output: str
    errors: str


class FileStatus(NamedTuple):
    """Paths from `git status`: tracked files that differ, and files in conflict."""

    changed: list[str]
    unmerged: list[str]


class TargetBranch(NamedTuple):
    """A branch that collects work. `tip` is the newest commit, here or at origin; `local` is the
    local commit, None if the branch only exists at origin."""

    name: str
    tip: str
    local: str | None


class Git(NamedTuple):
    """`inherited`: descriptors that git keeps open, so that a lock lasts as long as git runs."""

    folder: Path
    inherited: tuple[int, ...] = ()

    def at(self, folder: Path) -> "Git":
        return self._replace(folder=folder)

    def attempt(
        self, *words: str, seconds_max: float = LOCAL_SECONDS_MAX, keep_index: bool = False
    ) -> GitResult:
        """Run Git and return the result, whatever its exit code. Raises GitUnavailable."""
        dropped = OF_HOOKS if keep_index else (*OF_HOOKS, INDEX)
        environment = {name: text for name, text in os.environ.items() if name not in dropped}
        try:
            process = subprocess.Popen(
                ["git", *ALONE, *words],
                cwd=self.folder,
                env={**environment, **WITHOUT_QUESTIONS},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=self.inherited,
            )
        except OSError as error:
            raise GitUnavailable(
                f"git can't be started in {self.folder}: {error.strerror}"
            ) from None
        try:
            output, errors = process.communicate(timeout=seconds_max)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            name = words[0]
            raise GitUnavailable(f"git {name} took longer than {seconds_max:.0f} s") from None
        return GitResult(process.returncode, _text(output), _text(errors))

    def run(
        self, *words: str, seconds_max: float = LOCAL_SECONDS_MAX, keep_index: bool = False
    ) -> str:
        """Return the output, without the last line break. Raises GitFailed."""
        result = self.attempt(*words, seconds_max=seconds_max, keep_index=keep_index)
        if result.code:
            raise failure(words[0], result)
        return result.output.removesuffix("\n")

    def names(self, *words: str, keep_index: bool = False) -> list[str]:
        """Return the files that a command such as `diff` lists, whatever settings and
        `.gitmodules` contain. A moved file is there under both names, and a submodule's name
        ends with `/`."""
        output = self.run(words[0], *NAMES, *words[1:], keep_index=keep_index)
        # The mode before and after; 160000 is a submodule.
        raw = iter(output.split("\0"))
        return [name + "/" * ("160000" in mode[:14]) for mode, name in zip(raw, raw, strict=False)]

    # -- questions -------------------------------------------------------------------------------

    def commit_of(self, name: str) -> str | None:
        result = self.attempt("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return result.output.strip() if result.code == 0 else None

    def contains(self, commit: str, ancestor: str) -> bool:
        return self.attempt("merge-base", "--is-ancestor", ancestor, commit).code == 0

    def top(self) -> Path:
        """Return this checkout's root. Raises NotARepository."""
        result = self.attempt("rev-parse", "--show-toplevel")
        if result.code:
            raise NotARepository(f"{self.folder} is not in a git repository")
        return Path(result.output.rstrip("\n"))

    def path_of(self, name: str) -> Path:
        """Return a file in Git's own folder, which may be this worktree's or shared by all."""
        return (self.folder / self.run("rev-parse", "--git-path", name)).resolve()

    def branch(self) -> str | None:
        """Return this checkout's branch; during a rebase, the branch that is rebased."""
        for kind in ("rebase-merge", "rebase-apply"):
            with suppress(OSError):
                text = (self.path_of(kind) / "head-name").read_text("utf-8")
                return text.strip().removeprefix("refs/heads/")
        result = self.attempt("symbolic-ref", "--quiet", "--short", "HEAD")
        return result.output.strip() if result.code == 0 else None

    def is_rebasing(self) -> bool:
        return any(self.path_of(kind).exists() for kind in ("rebase-merge", "rebase-apply"))

    def worktrees(self) -> dict[Path, str | None]:
        """Return all of the repository's checkouts with their branches, the main one first."""
        rows: dict[Path, str | None] = {}
        path = Path()
        for line in self.run("worktree", "list", "--porcelain").splitlines():
            word, _, text = line.partition(" ")
            if word == "worktree":
                path = Path(text)
                rows[path] = None
            elif word == "branch":
                rows[path] = text.removeprefix("refs/heads/")
        return rows

    def status(self) -> FileStatus:
        unmerged = self.names("diff", "--diff-filter=U")
        changed = self.names("diff", "--ignore-submodules=untracked", "HEAD")
        return FileStatus([name for name in changed if name not in unmerged], unmerged)

    def is_clean(self) -> bool:
        """Return whether removing this worktree would lose nothing."""
        return not self.run("status", "--porcelain")

    def target(self, name: str) -> TargetBranch | None:
        """Return the branch `name`, from here or from origin, whichever is newer; None if it is
        absent."""
        local = self.commit_of(f"refs/heads/{name}")
        remote = self.commit_of(f"refs/remotes/origin/{name}")
        tip = local or remote
        if tip is None:
            return None
        if local and remote and not self.contains(local, remote):
            if not self.contains(remote, local):
                raise BranchDiverged(
                    f"{name} and origin/{name} have diverged",
                    hint=f"git switch {name} && git pull --rebase, then run the command again",
                )
            tip = remote
        return TargetBranch(name, tip, local)

    def integration(self) -> TargetBranch:
        """Return the branch that collects approved work. Raises NotARepository."""
        for name in self._integration_names():
            if target := self.target(name):
                return target
        raise NotARepository(f"{self.folder} has no branch with a commit")

    def _integration_names(self) -> Iterator[str]:
        yield "integration"
        default = self.attempt("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        if default.code == 0:
            yield default.output.strip().removeprefix("origin/")
        yield from ("main", "master")
        main = next(iter(self.worktrees().values()), None)
        if main:
            yield main

    # -- changes ---------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Fetch from origin, if the repository has it."""
        if "origin" in self.run("remote").split():
            self.run("fetch", "--quiet", "origin", seconds_max=LONG_SECONDS_MAX)

    def rebase(self, onto: str) -> FileStatus:
        """Rebase this checkout's branch. On a conflict the rebase stays in progress, and the result
        has the files. Raises GitFailed."""
        result = self.attempt("rebase", onto, seconds_max=LONG_SECONDS_MAX)
        if result.code and not self.is_rebasing():
            raise failure("rebase", result)
        return self.status() if result.code else FileStatus([], [])

    def merge_commit(self, target: TargetBranch, branch: str, head: str, message: str) -> str:
        """Make a commit that merges `branch` at `head` into `target`, without a checkout. No
        branch has changed yet. Raises MergeConflict."""
        if self.contains(target.tip, head):
            return target.tip
        result = self.attempt(
            "merge-tree", "--write-tree", "--name-only", "--no-messages", target.tip, head,
            seconds_max=LONG_SECONDS_MAX,
        )  # fmt: skip
        tree, *files = result.output.splitlines() or [""]
        if result.code == 1:
            files = [name for name in files if name]
            text = f"{branch} conflicts with {target.name} in {', '.join(files)}"
            raise MergeConflict(text, files)
        if result.code:
            raise failure("merge-tree", result)
        return self.run("commit-tree", tree, "-p", target.tip, "-p", head, "-m", message)

    def advance(self, target: TargetBranch, commit: str) -> None:
        """Move the branch forward to a newer commit, also in its checkout.

        Raises GitFailed if the branch moved meanwhile, or if changes in the checkout would be lost.
        """
        for folder, branch in self.worktrees().items():
            if branch == target.name:
                self.at(folder).run("merge", "--ff-only", commit, seconds_max=LONG_SECONDS_MAX)
                return
        name, before = f"refs/heads/{target.name}", target.local or NO_COMMIT
        self.run("update-ref", "-m", "agentlip worker merge", name, commit, before)

    def remove_worktree(self, folder: Path, *, force: bool = False) -> None:
        """Remove a worktree, also a locked one. Raises GitFailed if it has uncommitted files,
        which `force` removes too."""
        if folder in self.worktrees():
            self.attempt("worktree", "unlock", str(folder))
            words = ["--force"] if force else []
            self.run("worktree", "remove", *words, str(folder), seconds_max=LONG_SECONDS_MAX)


def failure(name: str, result: GitResult) -> GitFailed:
    text = (result.errors or result.output).strip()[-MESSAGE_CHARACTERS_MAX:]
    return GitFailed(f"git {name}: {text or f'exit code {result.code}'}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")

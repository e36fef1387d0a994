"""Real git repositories for tests, independent of the settings of the user who runs them."""

import subprocess
from pathlib import Path

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "test",
    "GIT_AUTHOR_EMAIL": "test@example.com",
    "GIT_COMMITTER_NAME": "test",
    "GIT_COMMITTER_EMAIL": "test@example.com",
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


def commit(folder: Path, files: dict[str, str], title: str = "change", hooks: bool = False) -> str:
    """Without hooks: those of a worktree start Python twice."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(folder, "add", "--", *files)
    git(folder, *(() if hooks else NO_HOOKS), "commit", "--quiet", "-m", title)
    return git(folder, "rev-parse", "HEAD")


def new_repository(folder: Path, branch: str = "main") -> Path:
    """A repository with a commit of the file `base.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch", branch)
    commit(folder, {"base.txt": "base\n"}, "base")
    return folder

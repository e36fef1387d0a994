"""Identifies the build by commit and date. A checkout reads both from Git; a build writes both
here."""

import subprocess
from pathlib import Path

from appliance import __version__

_GIT_SECONDS_MAX = 5.0
_WRITTEN = "$Format:%H %cs$"  # by `git archive`, or by setup.py


def commit() -> tuple[str, str]:
    """Return the commit in 12 digits, and its date; empty texts if unknown."""
    text = _ask_git() if _WRITTEN.startswith("$") else _WRITTEN
    revision, _, date = text.partition(" ")
    return revision[:12], date


def version_line() -> str:
    """Return `agentlip VERSION (commit 0123456789ab, 2026-02-04)`, without unknown parts."""
    revision, date = commit()
    return f"agentlip {__version__}" + (f" (commit {revision}, {date})" if revision else "")


def _ask_git() -> str:
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "log", "-1", "--format=%H %cs"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()

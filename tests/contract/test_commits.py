"""Commit subjects are `subsystem: imperative summary`, and name what a user of the code notices."""

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.contract.test_walls import ROOT

SINCE = datetime(2026, 11, 29, 2, tzinfo=UTC)
"""Older commits are not checked."""
LENGTH_MAX = 60
FORM = re.compile(r"(?:[a-z][a-z0-9_.-]*(?:, ?)?)+: \S.*[^.\s]")
NOT_IMPERATIVE = re.compile(r": (?:(?:a|an|the)\b|(?!embed|feed|need|bring|string)\w+(?:ed|ing)\b)")


def history(root: Path) -> list[tuple[datetime, str]] | None:
    """Return author date and subject of each commit, without merges.

    None if the folder is not the root of a repository, as in an exported checkout. A shallow
    checkout has the commits that were fetched.
    """
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=root, env=environ, capture_output=True, text=True, check=True
        ).stdout

    try:
        if Path(git("rev-parse", "--show-toplevel").strip()).resolve() != root.resolve():
            return None
        lines = git("log", "--no-merges", "--format=%at %s").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    pairs = (line.split(" ", 1) for line in lines)
    return [(datetime.fromtimestamp(int(at), UTC), subject) for at, subject in pairs]


def problems(subject: str) -> list[str]:
    """Name the rules that a subject breaks."""
    rules = {
        f"longer than {LENGTH_MAX} characters": len(subject) > LENGTH_MAX,
        "more than one 'of'": len(re.findall(r"\bof\b", subject)) > 1,
        "not 'subsystem: summary'": not FORM.fullmatch(subject),
        "no imperative verb after the colon": NOT_IMPERATIVE.search(subject) is not None,
    }
    return [rule for rule, broken in rules.items() if broken]


def test_recent_commit_subjects_follow_rules():
    commits = history(ROOT)
    if commits is None:
        pytest.skip("this checkout has no Git history")
    recent = [subject for at, subject in commits if at >= SINCE]
    assert {subject: broken for subject in recent if (broken := problems(subject))} == {}


@pytest.mark.parametrize(
    "subject",
    [
        "ops: stop reformatting the uv lock file",
        "kernel, web: refuse frames of other versions",
        "courier: feed the log in batches",
    ],
)
def test_plain_subject_has_no_problem(subject):
    assert problems(subject) == []


@pytest.mark.parametrize(
    ("subject", "count"),
    [
        ("ops: keep the lock of uv as ops/lock of the project writes it", 2),
        ("stop reformatting the lock file", 1),
        ("ops: Stop it.", 1),
        ("docs: the rewritten guides", 1),
        ("docs: added guides", 1),
        ("sdk: propagating callback exceptions", 1),
        ("ops: the lock file of uv", 1),
    ],
)
def test_broken_rules_of_subject_are_named(subject, count):
    assert len(problems(subject)) == count


def test_folder_without_repository_has_no_history(tmp_path):
    assert history(tmp_path) is None


def test_folder_inside_other_repository_has_no_history(tmp_path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "export").mkdir()
    assert history(tmp_path / "export") is None


def test_shallow_clone_has_fetched_commits(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "--quiet", "full")
    for subject in ("ops: add a", "ops: add b"):
        git("-C", "full", "commit", "--quiet", "--allow-empty", "--message", subject)
    git("clone", "--quiet", "--depth", "1", f"file://{tmp_path}/full", "shallow")
    commits = history(tmp_path / "shallow")
    assert commits is not None
    assert [subject for _, subject in commits] == ["ops: add b"]

"""Git through its command line, on real repositories."""

import pytest

from appliance.busfile.worker.git import (
    BranchDiverged,
    Git,
    GitFailed,
    GitUnavailable,
)
from tests.support.repository import commit, git, new_repository


@pytest.mark.parametrize("name", ["integration", "main", "master", "trunk"])
def test_integration_branch_falls_back_to_the_one_that_exists(tmp_path, name):
    folder = new_repository(tmp_path / "here", name)
    assert Git(folder).integration().name == name


@pytest.mark.parametrize("kept", [True, False])
def test_integration_of_origin_comes_first_whether_or_not_it_exists_here(tmp_path, kept):
    origin = new_repository(tmp_path / "origin")
    git(origin, "branch", "integration")
    git(tmp_path, "clone", "--quiet", str(origin), "here")
    here = tmp_path / "here"
    if kept:
        git(here, "branch", "integration", "origin/integration")
    git(origin, "switch", "--quiet", "integration")
    newest = commit(origin, {"new.txt": "new"})
    Git(here).fetch()
    target = Git(here).integration()
    assert (target.name, target.tip, target.local is not None) == ("integration", newest, kept)


def test_diverged_integration_branch_is_refused(tmp_path):
    origin = new_repository(tmp_path / "origin")
    git(tmp_path, "clone", "--quiet", str(origin), "here")
    commit(origin, {"a": "1"})
    commit(tmp_path / "here", {"b": "1"})
    Git(tmp_path / "here").fetch()
    with pytest.raises(BranchDiverged, match="main and origin/main have diverged"):
        Git(tmp_path / "here").integration()


def test_command_that_takes_too_long_is_killed_with_all_it_started(repository):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nsleep 600\n")
    hook.chmod(0o755)
    with pytest.raises(GitUnavailable, match="git commit took longer"):
        Git(repository).attempt("commit", "--allow-empty", "-m", "x", seconds_max=0.3)


def test_branch_that_moved_meanwhile_is_not_advanced(repository):
    git(repository, "switch", "--quiet", "-c", "side")
    target = Git(repository).target("main")
    made = commit(repository, {"new.txt": "new"})
    git(repository, "branch", "-f", "main", commit(repository, {"other.txt": "new"}))
    with pytest.raises(GitFailed):
        Git(repository).advance(target, made)

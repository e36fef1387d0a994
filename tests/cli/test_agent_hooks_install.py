"""`agentlip agent hooks` as a process: what is shown, written, and refused."""

import json
import os
from pathlib import Path

import pytest

from tests.support.commands import agentlip, succeed

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    succeed("init", tmp_path, cwd=tmp_path)
    return tmp_path


def path_with(folder: Path, program: str, version: str) -> str:
    """A PATH on which the harness says this version."""
    folder.mkdir(exist_ok=True)
    script = folder / program
    script.write_text(f"#!/bin/sh\necho '{version}'\n")
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = (str(path.relative_to(folder)) for path in paths)
    return sorted(name for name in names if not name.startswith(".agentlip"))


def test_without_yes_the_difference_is_shown_and_nothing_written(project: Path) -> None:
    before = files(project)
    shown = succeed("agent", "hooks", "install", "claude-code", cwd=project)
    assert "+++ " in shown.out
    assert '+    "SessionStart": [' in shown.out
    assert shown.out.endswith("nothing is written yet: add --yes\n")
    assert files(project) == before


def test_install_and_remove_report_the_files(project: Path) -> None:
    before = files(project)
    flags = ("codex", "--yes", "--json")
    done = succeed("agent", "hooks", "install", *flags, cwd=project)
    assert [Path(row["path"]).name for row in done.json["files"]] == ["hooks.json", "config.toml"]
    again = succeed("agent", "hooks", "install", *flags, cwd=project)
    assert again.json == {"files": [], "written": True}
    succeed("agent", "hooks", "remove", *flags, cwd=project)
    assert files(project) == before


def test_print_shows_each_file_and_writes_none(project: Path) -> None:
    before = files(project)
    for harness in ("claude-code", "codex", "gemini", "opencode"):
        shown = succeed("agent", "hooks", "install", harness, "--print", cwd=project).out
        assert "agent hook" in shown.replace('", "', " ")
    assert files(project) == before


def test_user_files_are_in_the_home_folder(project: Path) -> None:
    home = project / "home"
    home.mkdir()
    for harness in ("claude-code", "codex", "gemini", "opencode"):
        flags = (harness, "--user", "--yes")
        succeed("agent", "hooks", "install", *flags, cwd=project, HOME=str(home))
    assert files(home) == [
        ".claude/settings.json", ".codex/config.toml", ".codex/hooks.json",
        ".config/opencode/opencode.json", ".config/opencode/plugins/agentlip.js",
        ".gemini/settings.json",
    ]  # fmt: skip
    assert "hooks" in json.loads((home / ".gemini/settings.json").read_text())


@pytest.mark.parametrize(
    ("harness", "program", "version"),
    [
        ("claude-code", "claude", "2.1.240 (Claude Code)"),
        ("codex", "codex", "codex-cli 0.164.0"),
        ("gemini", "gemini", "0.56.0-nightly.20260806.g761f604c1"),
        ("opencode", "opencode", "1.18.33"),
    ],
)
def test_known_versions_are_accepted(
    project: Path, harness: str, program: str, version: str
) -> None:
    path = path_with(project / "bin", program, version)
    done = succeed("agent", "hooks", "install", harness, "--yes", cwd=project, PATH=path)
    assert "not checked" not in done.err


@pytest.mark.parametrize(
    ("harness", "program", "version"),
    [
        ("claude-code", "claude", "1.0.128 (Claude Code)"),
        ("claude-code", "claude", "3.0.0 (Claude Code)"),
        ("codex", "codex", "codex-cli 0.99.0"),
        ("opencode", "opencode", "1.18.28"),
        ("opencode", "opencode", "2.0.0"),
        ("gemini", "gemini", "no version"),
    ],
)
def test_unknown_versions_are_refused_with_the_expected(
    project: Path, harness: str, program: str, version: str
) -> None:
    before = files(project)
    path = path_with(project / "bin", program, version)
    done = agentlip("agent", "hooks", "install", harness, "--yes", cwd=project, PATH=path)
    assert done.code == 2
    assert "expected" in done.err
    assert "or newer, below" in done.err
    assert "--print" in done.err
    assert files(project) == sorted([*before, f"bin/{program}"])


def test_unknown_harness_is_refused_naming_the_known(project: Path) -> None:
    done = agentlip("agent", "hooks", "install", "emacs", cwd=project)
    assert done.code == 1
    assert "claude-code, codex, gemini, opencode" in done.err

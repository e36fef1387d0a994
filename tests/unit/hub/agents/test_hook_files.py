"""Harness files: our entries are added beside others, once, and taken out without a trace."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from appliance.hub.agents.hooks.answers import HookInput, edited_paths
from appliance.hub.agents.hooks.files import (
    FileChange,
    HarnessFileUnknown,
    Wanted,
    plan_changes,
    write_changes,
)
from appliance.hub.agents.hooks.harnesses import HARNESSES
from appliance.hub.agents.hooks.state import SESSIONS_MAX, HookState
from appliance.sdk.mcp_clients import McpServer

FOREIGN_HOOK = {"type": "command", "command": "my-agent hook claude-code"}
OTHERS: dict[str, dict[str, str]] = {
    "claude-code": {
        ".claude/settings.json": json.dumps(
            {
                "permissions": {"allow": ["Bash(ls:*)"]},
                "hooks": {"Stop": [{"hooks": [FOREIGN_HOOK]}], "Notification": []},
                "model": "opus",
            },
            indent=4,
        ) + "\n",
        ".mcp.json": '{"mcpServers": {"other": {"command": "x"}}}\n',
    },
    "codex": {
        ".codex/hooks.json": '{"hooks": {"Stop": [{"hooks": [{"command": "beep"}]}]}}\n',
        ".codex/config.toml": '# mine\nmodel = "gpt"  # fast\n\n[mcp_servers.other]\nurl = "https://x"\n',
    },
    "gemini": {".gemini/settings.json": '{\n\t"theme": "dark"\n}\n'},
    "opencode": {"opencode.json": '{"$schema": "https://opencode.ai/config.json"}\n'},
}  # fmt: skip


def wanted(harness: str, name: str = "ada") -> Wanted:
    words = ["/opt/agentlip", "agent", "hook", harness, "--as", name]
    return Wanted(HARNESSES[harness], words, " ".join(words), McpServer(["/opt/agentlip", "mcp"]))


def unwanted(harness: str) -> Wanted:
    return Wanted(HARNESSES[harness], (), "", McpServer())


def apply(plan: Wanted, project: Path) -> list[FileChange]:
    changes = plan_changes(plan, project, user=False)
    write_changes(changes)
    return changes


def contents(project: Path) -> dict[str, Any]:
    """Every file, as what it says."""
    loads = {".json": json.loads, ".toml": tomllib.loads}
    return {
        str(path.relative_to(project)): loads.get(path.suffix, str)(path.read_text())
        for path in sorted(project.rglob("*")) if path.is_file()
    }  # fmt: skip


def write_others(project: Path, harness: str) -> None:
    for name, text in OTHERS[harness].items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("harness", HARNESSES)
def test_install_adds_and_remove_restores_every_file(tmp_path: Path, harness: str) -> None:
    write_others(tmp_path, harness)
    before = contents(tmp_path)
    assert {change.path.exists() for change in apply(wanted(harness), tmp_path)} == {True}
    assert contents(tmp_path) != before
    apply(unwanted(harness), tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("harness", HARNESSES)
def test_second_install_changes_nothing(tmp_path: Path, harness: str) -> None:
    write_others(tmp_path, harness)
    apply(wanted(harness), tmp_path)
    assert plan_changes(wanted(harness), tmp_path, user=False) == []


@pytest.mark.parametrize("harness", HARNESSES)
def test_remove_leaves_no_file_that_install_made(tmp_path: Path, harness: str) -> None:
    assert plan_changes(unwanted(harness), tmp_path, user=False) == []
    apply(wanted(harness), tmp_path)
    apply(unwanted(harness), tmp_path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("harness", HARNESSES)
def test_install_for_another_name_replaces_the_former(tmp_path: Path, harness: str) -> None:
    apply(wanted(harness, "ada"), tmp_path)
    apply(wanted(harness, "bea"), tmp_path)
    text = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "ada" not in text
    assert "bea" in text


def test_other_hooks_keep_their_places(tmp_path: Path) -> None:
    write_others(tmp_path, "claude-code")
    apply(wanted("claude-code"), tmp_path)
    text = (tmp_path / ".claude/settings.json").read_text()
    settings = json.loads(text)
    assert list(settings) == ["permissions", "hooks", "model"]
    assert settings["hooks"]["Stop"][0] == {"hooks": [FOREIGN_HOOK]}
    assert len(settings["hooks"]["Stop"]) == 2
    assert text.startswith('{\n    "permissions"')


def test_group_that_mixes_our_hook_with_others_loses_only_ours(tmp_path: Path) -> None:
    apply(wanted("claude-code"), tmp_path)
    path = tmp_path / ".claude/settings.json"
    settings = json.loads(path.read_text())
    settings["hooks"]["Stop"][0]["hooks"].append(FOREIGN_HOOK)
    path.write_text(json.dumps(settings))
    apply(unwanted("claude-code"), tmp_path)
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [FOREIGN_HOOK]}]}}


def test_toml_keeps_its_comments_and_text(tmp_path: Path) -> None:
    write_others(tmp_path, "codex")
    path = tmp_path / ".codex/config.toml"
    before = path.read_text()
    apply(wanted("codex"), tmp_path)
    assert path.read_text().startswith(before)
    path.write_text(path.read_text() + "\n[profiles.x]\nmodel = 'y'\n")
    apply(unwanted("codex"), tmp_path)
    assert path.read_text() == before + "\n[profiles.x]\nmodel = 'y'\n"


UNKNOWN = {
    "comments": ("claude-code", ".claude/settings.json", '{"a": 1} // mine'),
    "a list": ("claude-code", ".claude/settings.json", "[]"),
    "hooks as a list": ("claude-code", ".claude/settings.json", '{"hooks": []}'),
    "hooks as texts": ("claude-code", ".claude/settings.json", '{"hooks": {"Stop": ["x"]}}'),
    "no group": ("codex", ".codex/hooks.json", '{"hooks": {"Stop": [{"command": "x"}]}}'),
    "deep": ("claude-code", ".claude/settings.json", "[" * 100_000),
    "servers as a list": ("claude-code", ".mcp.json", '{"mcpServers": []}'),
    "wrong toml": ("codex", ".codex/config.toml", "model = "),
    "another agentlip": ("codex", ".codex/config.toml", '[mcp_servers.agentlip]\nurl = "https://x"\n'),
    "servers in one line": ("codex", ".codex/config.toml", 'mcp_servers = {x = {url = "https://x"}}\n'),
    "not utf-8": ("gemini", ".gemini/settings.json", b'{"a": "\xff"}'),
    "too large": ("gemini", ".gemini/settings.json", b" " * 1_100_000),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_file_in_another_form_is_refused_and_unchanged(tmp_path: Path, name: str) -> None:
    harness, file, text = UNKNOWN[name]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes()
    with pytest.raises(HarnessFileUnknown):
        plan_changes(wanted(harness), tmp_path, user=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["comments", "wrong toml", "not utf-8", "too large"])
def test_removal_from_a_broken_file_hints_at_our_entries(tmp_path: Path, name: str) -> None:
    harness, file, text = UNKNOWN[name]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HarnessFileUnknown) as raised:
        plan_changes(unwanted(harness), tmp_path, user=False)
    assert raised.value.hint == f"remove our entries by hand: grep -n agentlip {path}"


def test_link_and_mode_of_a_file_stay(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}\n")
    target.chmod(0o600)
    link = tmp_path / ".gemini/settings.json"
    link.parent.mkdir()
    link.symlink_to(target)
    apply(wanted("gemini"), tmp_path)
    assert link.is_symlink()
    assert "agentlip" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600


# -- edited paths and state ------------------------------------------------------------------------

PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
*** Delete File: old dir/c.py
*** End Patch"""


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"file_path": "src/a.py"}, ["src/a.py"]),
        ({"filePath": "src/../b.py"}, ["b.py"]),
        ({"notebook_path": "n.ipynb", "path": "n.ipynb"}, ["n.ipynb"]),
        ({"command": PATCH}, ["src/a.py", "src/b.py", "old dir/c.py"]),
        ({"patchText": PATCH.replace("src/a.py", "/etc/passwd")}, ["src/b.py", "old dir/c.py"]),
        ({"command": "cat src/a.py"}, []),
        ({"file_path": 7, "path": None}, []),
    ],
)
def test_edited_paths_start_at_the_checkout(
    tmp_path: Path, fields: dict[str, Any], paths: list[str]
) -> None:
    (tmp_path / ".git").mkdir()
    given = HookInput("PreToolUse", "s", str(tmp_path), "Write", fields)
    assert list(edited_paths(given)) == paths


def test_state_continues_each_session_for_newer_entries_only(tmp_path: Path) -> None:
    state = HookState(tmp_path / "state")
    asked = [("a", 5), ("a", 5), ("a", 4), ("b", 5), ("a", 6)]
    assert [state.continues(*each) for each in asked] == [True, False, False, True, True]


def test_state_keeps_a_limited_number_of_sessions(tmp_path: Path) -> None:
    state = HookState(tmp_path)
    for number in range(SESSIONS_MAX + 10):
        assert state.continues(f"s{number}", 1)
    assert len(list(tmp_path.iterdir())) <= SESSIONS_MAX


def test_damaged_state_continues_nothing(tmp_path: Path) -> None:
    state = HookState(tmp_path)
    assert state.continues("a", 1)
    next(tmp_path.iterdir()).write_text("?")
    assert not state.continues("a", 2)

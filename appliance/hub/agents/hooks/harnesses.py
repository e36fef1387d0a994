"""Declares the harnesses: their files, events and versions. Pure.

Sources: code.claude.com/docs/en/hooks (2.1), developers.openai.com/codex/hooks and the schemas in
openai/codex (0.124 to 0.164), google-gemini/gemini-cli docs/hooks (0.56), and
opencode.ai/docs/plugins with its migration guide (1.18 and 2.0). Run with a model that always
responds `done`, the installed files gave one context and one continuation in Claude Code 2.1.197,
Codex 0.171, Gemini CLI 0.61 and `opencode serve` 1.18.33.
"""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

Moment = Literal["start", "prompt", "edit", "stop", "end"]
Version = tuple[int, int, int]
Format = Literal["hooks", "mcp", "toml", "plugin"]

SECONDS = 10  # after which a harness ends the hook; the hook itself ends sooner


class HarnessFile(Struct, frozen=True):
    """A harness file, in a project and for a user. `formats`: our entries there. `user`: empty if
    the harness has a command instead."""

    formats: tuple[Format, ...]
    project: str
    user: str = ""


class HookEvent(Struct, frozen=True):
    """`matcher`: the tools, as a regular expression; empty: no matcher."""

    moment: Moment
    matcher: str = ""


class Harness(Struct, frozen=True):
    """One harness.

    client    its name in `agentlip mcp config`
    program   its command, run with --version
    versions  the first version that is known, and the first that is not
    events    its events by name
    files     in the order in which they are shown
    deny      the keys of an answer that refuses a tool: the decision's and the reason's
    block     the word that continues a turn
    unit      its timeouts in a second
    note      the user's next step after the installation
    """

    client: str
    program: str
    versions: tuple[Version, Version]
    events: dict[str, HookEvent]
    files: tuple[HarnessFile, ...]
    deny: tuple[str, str] = ("permissionDecision", "permissionDecisionReason")
    block: str = "block"
    unit: int = 1
    note: str = ""

    @property
    def is_nested(self) -> bool:
        """Return whether a refusal is under `hookSpecificOutput`."""
        return self.deny[0] == "permissionDecision"


_EVENTS = {
    "SessionStart": HookEvent("start"),
    "UserPromptSubmit": HookEvent("prompt"),
    "PreToolUse": HookEvent("edit"),
    "Stop": HookEvent("stop"),
    "SessionEnd": HookEvent("end"),
}


def _events(edits: str, *without: str) -> dict[str, HookEvent]:
    events = _EVENTS | {"PreToolUse": HookEvent("edit", edits)}
    return {name: event for name, event in events.items() if name not in without}


HARNESSES: dict[str, Harness] = {
    "claude-code": Harness(
        "claude-code", "claude", ((2, 0, 0), (3, 0, 0)),
        _events("Edit|MultiEdit|Write|NotebookEdit"),
        (
            HarnessFile(("hooks",), ".claude/settings.json", "~/.claude/settings.json"),
            HarnessFile(("mcp",), ".mcp.json"),
        ),
        note="Claude Code asks once whether it may use the project's .mcp.json",
    ),
    "codex": Harness(
        "codex", "codex", ((0, 124, 0), (1, 0, 0)),
        _events("apply_patch|Edit|Write", "SessionEnd"),
        (
            HarnessFile(("hooks",), ".codex/hooks.json", "~/.codex/hooks.json"),
            HarnessFile(("toml",), ".codex/config.toml", "~/.codex/config.toml"),
        ),
        note="in Codex, review and trust the hooks with /hooks: until then they don't run",
    ),
    "gemini": Harness(
        "gemini-cli", "gemini", ((0, 26, 0), (1, 0, 0)),
        {
            "SessionStart": HookEvent("start"),
            "BeforeAgent": HookEvent("prompt"),
            "BeforeTool": HookEvent("edit", "write_file|replace"),
            "AfterAgent": HookEvent("stop"),
            "SessionEnd": HookEvent("end"),
        },
        (HarnessFile(("hooks", "mcp"), ".gemini/settings.json", "~/.gemini/settings.json"),),
        deny=("decision", "reason"), block="deny", unit=1000,
        note="Gemini CLI runs a project's hooks only in a trusted folder",
    ),
    "opencode": Harness(
        "opencode", "opencode", ((1, 18, 29), (2, 0, 0)), _events("", "UserPromptSubmit"),
        (
            HarnessFile(("plugin",), ".opencode/plugins/agentlip.js",
                        "~/.config/opencode/plugins/agentlip.js"),
            HarnessFile(("mcp",), "opencode.json", "~/.config/opencode/opencode.json"),
        ),
        note="restart opencode: plugins are loaded at its start",
    ),
}  # fmt: skip


def path_of(file: HarnessFile, project: Path, *, user: bool) -> Path | None:
    """Return the file's path; None if a user has no such file."""
    if not user:
        return project / file.project
    return Path(file.user).expanduser() if file.user else None


def hook_entry(harness: Harness, event: HookEvent, command: str) -> dict[str, Any]:
    """Return the event's list entry."""
    hook = {"type": "command", "command": command, "timeout": SECONDS * harness.unit}
    matcher = {"matcher": event.matcher} if event.matcher else {}
    return {**matcher, "hooks": [hook]}

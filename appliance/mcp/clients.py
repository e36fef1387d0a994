"""Renders configuration snippets that connect MCP clients to the hub. Pure."""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

NAME = "agentlip"


class ClientSetup(Struct, frozen=True):
    """One client's set-up. `location`: the file for the snippet. `command`: a shell command with
    the same effect."""

    location: str
    snippet: Callable[[Sequence[str]], str]
    command: Callable[[Sequence[str]], str] | None = None


def _json(*path: str, **more: Any) -> Callable[[Sequence[str]], str]:
    """Return a renderer whose entry stands under `path`."""

    def snippet(words: Sequence[str]) -> str:
        value: Any = {NAME: {**more, "command": words[0], "args": list(words[1:])}}
        for name in reversed(path):
            value = {name: value}
        return json.dumps(value, indent=2, ensure_ascii=False)

    return snippet


def _codex(words: Sequence[str]) -> str:
    # TOML's basic strings are written like JSON strings.
    command, arguments = (json.dumps(part, ensure_ascii=False) for part in (words[0], words[1:]))
    return f"[mcp_servers.{NAME}]\ncommand = {command}\nargs = {arguments}"


def _add(program: str, *before: str) -> Callable[[Sequence[str]], str]:
    return lambda words: shlex.join([program, "mcp", "add", NAME, *before, *words])


CLIENTS: dict[str, ClientSetup] = {
    "claude-code": ClientSetup(
        ".mcp.json in the project", _json("mcpServers", type="stdio"), _add("claude", "--")
    ),
    "claude-desktop": ClientSetup("claude_desktop_config.json", _json("mcpServers")),
    "cursor": ClientSetup(".cursor/mcp.json, or ~/.cursor/mcp.json", _json("mcpServers")),
    "vscode": ClientSetup(".vscode/mcp.json", _json("servers", type="stdio")),
    "codex": ClientSetup("~/.codex/config.toml", _codex, _add("codex", "--")),
    "gemini-cli": ClientSetup("~/.gemini/settings.json", _json("mcpServers")),
    "zed": ClientSetup("settings.json", _json("context_servers", source="custom")),
    "generic": ClientSetup("the command for a stdio server", shlex.join),
}

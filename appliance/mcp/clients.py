"""What to write where, so that an agent's client finds the hub. Pure."""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

NAME = "agentlip"


class Client(Struct, frozen=True):
    """`place`: the file that the snippet goes into. `command`: the same typed in a shell."""

    place: str
    snippet: Callable[[Sequence[str]], str]
    command: Callable[[Sequence[str]], str] | None = None


def _json(*path: str, **more: Any) -> Callable[[Sequence[str]], str]:
    """A snippet whose entry stands under `path`."""

    def snippet(words: Sequence[str]) -> str:
        value: Any = {NAME: {**more, "command": words[0], "args": list(words[1:])}}
        for name in reversed(path):
            value = {name: value}
        return json.dumps(value, indent=2, ensure_ascii=False)

    return snippet


def _codex(words: Sequence[str]) -> str:
    # Basic strings of TOML are those of JSON.
    command, arguments = (json.dumps(part, ensure_ascii=False) for part in (words[0], words[1:]))
    return f"[mcp_servers.{NAME}]\ncommand = {command}\nargs = {arguments}"


def _add(program: str, *before: str) -> Callable[[Sequence[str]], str]:
    return lambda words: shlex.join([program, "mcp", "add", NAME, *before, *words])


CLIENTS: dict[str, Client] = {
    "claude-code": Client(
        ".mcp.json in the project", _json("mcpServers", type="stdio"), _add("claude", "--")
    ),
    "claude-desktop": Client("claude_desktop_config.json", _json("mcpServers")),
    "cursor": Client(".cursor/mcp.json, or ~/.cursor/mcp.json", _json("mcpServers")),
    "vscode": Client(".vscode/mcp.json", _json("servers", type="stdio")),
    "codex": Client("~/.codex/config.toml", _codex, _add("codex", "--")),
    "gemini-cli": Client("~/.gemini/settings.json", _json("mcpServers")),
    "zed": Client("settings.json", _json("context_servers", source="custom")),
    "generic": Client("wherever a command for a stdio server is asked for", shlex.join),
}

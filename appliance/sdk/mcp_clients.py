"""Renders configuration snippets that connect MCP clients to the hub. Pure.

A client starts a command, or connects to a URL. A snippet with a URL contains no token: the client
signs in with the issuer, or reads the token from a variable where it can.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from appliance.kernel.errors import Invalid

NAME = "agentlip"
TOKEN_VARIABLE = "AGENTLIP_TOKEN"
GOOSE_SECONDS = 300

Entry = dict[str, Any]


class McpServer(Struct, frozen=True):
    """The command that starts a server, or the URL where it is."""

    words: Sequence[str] = ()
    url: str = ""


class ClientSetup(Struct, frozen=True):
    """One client's set-up.

    location  the file for the snippet
    local     what an entry has for a command
    remote    what an entry has for a URL; None if its file can't name one
    path      the keys above the entry; empty for a file that is not JSON
    shell     words before the command in a shell command with the same effect
    remote_shell  the same, before the URL
    render    writes the entry, if its file is not JSON
    """

    location: str
    local: Callable[[Sequence[str]], Entry]
    remote: Callable[[str], Entry] | None = None
    path: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()
    remote_shell: tuple[str, ...] = ()
    render: Callable[[Entry], str] | None = None

    def entry(self, server: McpServer) -> Entry:
        """Return the entry. Raises Invalid for a URL if the client's file can't name one."""
        if not server.url:
            return self.local(server.words)
        if self.remote is None:
            raise Invalid(
                "this client's file can't name a URL",
                hint="add the URL in its settings as a connector, or leave out --url",
            )
        return self.remote(server.url)

    def snippet(self, server: McpServer) -> str:
        entry = self.entry(server)
        if self.render is not None:
            return self.render(entry)
        value: Any = {NAME: entry}
        for name in reversed(self.path):
            value = {name: value}
        return json.dumps(value, indent=2, ensure_ascii=False)

    def command(self, server: McpServer) -> str | None:
        """Return a shell command with the same effect; None if the client has none."""
        before = self.remote_shell if server.url else self.shell
        after = [server.url] if server.url else server.words
        return shlex.join([*before, *after]) if before else None


def _command(**more: Any) -> Callable[[Sequence[str]], Entry]:
    return lambda words: {**more, "command": words[0], "args": list(words[1:])}


def _url(key: str, **more: Any) -> Callable[[str], Entry]:
    return lambda url: {**more, key: url}


def _toml(entry: Entry) -> str:
    # TOML's basic strings and arrays are written like JSON's.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[mcp_servers.{NAME}]", *lines])


def _yaml(entry: Entry) -> str:
    # YAML reads JSON's strings, numbers and lists.
    lines = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join(["extensions:", f"  {NAME}:", *lines])


def _goose(kind: str, **more: Any) -> Entry:
    return {"name": NAME, "type": kind, "enabled": True, "timeout": GOOSE_SECONDS, **more}


def _words(entry: Entry) -> str:
    return str(entry.get("url") or shlex.join([entry["command"], *entry["args"]]))


CLIENTS: dict[str, ClientSetup] = {
    "claude-code": ClientSetup(
        ".mcp.json in the project", _command(type="stdio"), _url("url", type="http"),
        ("mcpServers",), ("claude", "mcp", "add", NAME, "--"),
        ("claude", "mcp", "add", "--transport", "http", NAME),
    ),
    "claude-desktop": ClientSetup(
        "claude_desktop_config.json", _command(), None, ("mcpServers",)
    ),
    "cline": ClientSetup(
        "cline_mcp_settings.json", _command(), _url("url", type="streamableHttp"), ("mcpServers",)
    ),
    "codex": ClientSetup(
        "~/.codex/config.toml", _command(), _url("url", bearer_token_env_var=TOKEN_VARIABLE),
        shell=("codex", "mcp", "add", NAME, "--"),
        remote_shell=("codex", "mcp", "add", NAME, "--url"), render=_toml,
    ),
    "cursor": ClientSetup(
        ".cursor/mcp.json, or ~/.cursor/mcp.json", _command(), _url("url"), ("mcpServers",)
    ),
    "gemini-cli": ClientSetup(
        "~/.gemini/settings.json", _command(), _url("httpUrl"), ("mcpServers",)
    ),
    "goose": ClientSetup(
        "~/.config/goose/config.yaml",
        lambda words: _goose("stdio", cmd=words[0], args=list(words[1:])),
        lambda url: _goose("streamable_http", uri=url), render=_yaml,
    ),
    "opencode": ClientSetup(
        "opencode.json", lambda words: {"type": "local", "command": list(words)},
        _url("url", type="remote"), ("mcp",),
    ),
    "vscode": ClientSetup(
        ".vscode/mcp.json", _command(type="stdio"), _url("url", type="http"), ("servers",)
    ),
    "windsurf": ClientSetup(
        "~/.codeium/windsurf/mcp_config.json", _command(), _url("serverUrl"), ("mcpServers",)
    ),
    "zed": ClientSetup(
        "settings.json", _command(source="custom"), _url("url"), ("context_servers",)
    ),
    "generic": ClientSetup(
        "the command or URL of a server", _command(), _url("url"), render=_words
    ),
}  # fmt: skip

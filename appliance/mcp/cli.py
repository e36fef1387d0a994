"""`agentlip mcp`: the stdio server that MCP clients start, and their configuration."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

import appliance
from appliance.cli_support import Session, WorkspaceFlag, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.mcp.clients import CLIENTS, McpServer
from appliance.mcp.protocol import PATH

ToolsFlag = Annotated[
    str,
    typer.Option(metavar="GROUPS", help="Tools to list: groups with commas, 'default' or 'all'."),
]

app = plain_app(
    "Serve MCP to an agent on standard input and output, for the running hub.\n\n"
    "MCP clients start this command; 'agentlip mcp config CLIENT' prints their configuration.",
    "Extensions/mcp",
)


@app.callback(invoke_without_command=True, no_args_is_help=False)
def bridge(ctx: typer.Context, workspace: WorkspaceFlag = None, tools: ToolsFlag = "") -> None:
    """Serve MCP until the input ends."""
    if ctx.invoked_subcommand is not None:
        return
    from appliance.sdk.bridge import Bridge
    from appliance.sdk.discovery import find_hub

    chosen = workspace or ctx.find_root().params.get("workspace")
    if sys.stdin.isatty():
        note("agentlip mcp: waiting for JSON-RPC lines; see also 'agentlip mcp config CLIENT'")
    Bridge(lambda: find_hub(chosen), sys.stdin.buffer, sys.stdout.buffer, _say, tools).run()


@app.command("config")
def show_config(
    session: Session,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=", ".join(CLIENTS))],
    tools: ToolsFlag = "",
    url: Annotated[
        str,
        typer.Option("--url", help="Address of an appliance elsewhere: https://agents.example.org"),
    ] = "",
) -> None:
    """Print a client's configuration, without a token: the hub's is found at runtime.

    With --url the client connects there; it signs in, or reads the variable AGENTLIP_TOKEN.
    """
    entry = CLIENTS.get(client)
    if entry is None:
        raise Invalid(f"unknown client {client!r}", hint=f"one of: {', '.join(CLIENTS)}")
    server = _remote(url, tools) if url else McpServer(server_words(session, tools))
    snippet, shell = entry.snippet(server), entry.command(server)
    session.note(f"add to {entry.location}:")
    answer = {"client": client, "place": entry.location, "snippet": snippet, "command": shell}
    session.answer(answer, snippet)
    if shell is not None:
        session.note(f"or: {shell}")


def server_words(session: Session, tools: str = "") -> Sequence[str]:
    """Return the command for a server on standard input, which works in any folder."""
    return [
        *program_words(),
        "mcp",
        *workspace_words(session),
        *(["--tools", tools] if tools else []),
    ]


def _remote(url: str, tools: str) -> McpServer:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise Invalid("--url must be an address", hint="--url https://agents.example.org")
    query = f"?{urlencode({'tools': tools}, safe=',')}" if tools else ""
    return McpServer(url=url.rstrip("/").removesuffix(PATH) + PATH + query)


def program_words() -> Sequence[str]:
    """Return the command that starts `agentlip` from any directory and environment."""
    program = shutil.which("agentlip")
    started = Path(sys.argv[0])
    if started.name == "agentlip" and started.is_file() and os.access(started, os.X_OK):
        program = str(started)
    return (
        [str(Path(program).absolute())] if program else [sys.executable, "-Pm", appliance.__name__]
    )


def workspace_words(session: Session) -> Sequence[str]:
    """Return the workspace flag with an absolute path; nothing for a remote hub."""
    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        return []
    from appliance.sdk.discovery import find_workspace

    return ["--workspace", str(find_workspace(session.workspace).workspace)]


def _say(sentence: str) -> None:
    note(f"agentlip mcp: {sentence}")

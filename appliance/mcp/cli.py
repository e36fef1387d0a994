"""`agentlip mcp`: the stdio server that MCP clients start, and their configuration."""

import sys
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from appliance.cli_support import Session, WorkspaceFlag, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.mcp.protocol import PATH
from appliance.sdk.mcp_clients import CLIENTS, McpServer

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
    from appliance.sdk.program import server_words

    entry = CLIENTS.get(client)
    if entry is None:
        raise Invalid(f"unknown client {client!r}", hint=f"one of: {', '.join(CLIENTS)}")
    server = _remote(url, tools) if url else McpServer(server_words(session.workspace, tools))
    snippet, shell = entry.snippet(server), entry.command(server)
    session.note(f"add to {entry.location}:")
    answer = {"client": client, "place": entry.location, "snippet": snippet, "command": shell}
    session.answer(answer, snippet)
    if shell is not None:
        session.note(f"or: {shell}")


def _remote(url: str, tools: str) -> McpServer:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise Invalid("--url must be an address", hint="--url https://agents.example.org")
    query = f"?{urlencode({'tools': tools}, safe=',')}" if tools else ""
    return McpServer(url=url.rstrip("/").removesuffix(PATH) + PATH + query)


def _say(sentence: str) -> None:
    note(f"agentlip mcp: {sentence}")

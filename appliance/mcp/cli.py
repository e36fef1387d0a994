"""`agentlip mcp`: what agents' clients start to talk to the hub, and how to tell them so."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli_support import Session, WorkspaceFlag, common, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.mcp.clients import CLIENTS

app = plain_app()


@app.callback(invoke_without_command=True)
def bridge(ctx: typer.Context, workspace: WorkspaceFlag = None) -> None:
    """Speak MCP on standard input and output for the running hub; 'config' prints the set-up."""
    if ctx.invoked_subcommand is not None:
        return
    from appliance.sdk.bridge import Bridge
    from appliance.sdk.discovery import find_hub

    chosen = workspace or ctx.find_root().params.get("workspace")
    if sys.stdin.isatty():
        note("agentlip mcp: waiting for JSON-RPC lines; 'agentlip mcp config CLIENT' tells more")
    Bridge(lambda: find_hub(chosen), sys.stdin.buffer, sys.stdout.buffer, _say).run()


@app.command("config")
@common
def show_config(
    session: Session,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help=", ".join(CLIENTS))],
) -> None:
    """Print what to write into a client's settings. No token is in it: the hub's is found."""
    known = CLIENTS.get(client)
    if known is None:
        raise Invalid(f"no client is known as {client!r}", hint=f"one of: {', '.join(CLIENTS)}")
    words = [*_program(), "mcp", *_workspace(session)]
    snippet = known.snippet(words)
    shell = None if known.command is None else known.command(words)
    if not session.machine:
        note(f"into {known.place}:")
    told = {"client": client, "place": known.place, "snippet": snippet, "command": shell}
    session.answer(told, snippet)
    if shell is not None and not session.machine:
        note(f"or: {shell}")


def _program() -> Sequence[str]:
    """How to start us from anywhere: clients don't know our environment."""
    found = shutil.which("agentlip")
    started = Path(sys.argv[0])
    if started.name == "agentlip" and started.is_file() and os.access(started, os.X_OK):
        found = str(started)
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "appliance"]


def _workspace(session: Session) -> Sequence[str]:
    """The workspace by its path, for a client starts us anywhere; a remote hub has none."""
    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        return []
    from appliance.sdk.discovery import find_workspace

    return ["--workspace", str(find_workspace(session.workspace).workspace)]


def _say(sentence: str) -> None:
    note(f"agentlip mcp: {sentence}")

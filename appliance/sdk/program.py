"""Writes the command lines by which other programs start `agentlip`, in any folder."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import appliance
from appliance.workspace.datadir import find_workspace


def server_words(workspace: Path | None, tools: str = "") -> Sequence[str]:
    """Return the command for an MCP server on standard input."""
    listed = ["--tools", tools] if tools else []
    return [*program_words(), "mcp", *workspace_words(workspace), *listed]


def program_words() -> Sequence[str]:
    """Return the command that starts `agentlip` from any directory and environment."""
    program = shutil.which("agentlip")
    started = Path(sys.argv[0])
    if started.name == "agentlip" and started.is_file() and os.access(started, os.X_OK):
        program = str(started)
    return (
        [str(Path(program).absolute())] if program else [sys.executable, "-Pm", appliance.__name__]
    )


def workspace_words(workspace: Path | None) -> Sequence[str]:
    """Return the workspace flag with an absolute path; nothing for a remote hub."""
    if workspace is None and os.environ.get("AGENTLIP_URL"):
        return []
    return ["--workspace", str(find_workspace(workspace).workspace)]

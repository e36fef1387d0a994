"""Opens the network agent that a command works with."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session
from appliance.kernel.errors import Invalid

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The other agent's name.")]
FolderFlag = Annotated[
    Path | None,
    typer.Option(
        "--folder", envvar="AGENTLIP_NETWORK_FOLDER", show_envvar=True,
        help="Agent folder (default: the workspace's only one).",
    ),
]  # fmt: skip


def open_agent(session: Session, folder: Path | None) -> Any:
    """Return the agent in the folder, or with AGENTLIP_URL an agent in that appliance."""
    if folder is None and session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.network.remote import RemoteAgent

        return RemoteAgent(own=os.environ.get("AGENTLIP_NETWORK_AGENT"))
    return open_folder_agent(session, folder)


def open_folder_agent(session: Session, folder: Path | None) -> Any:
    """Return the agent in the folder, or the workspace's only one. Raises NoNetworkAgent."""
    from appliance.sdk.network.agent import NetworkAgent

    return NetworkAgent(folder_of(session, folder))


def folder_of(session: Session, folder: Path | None) -> Path:
    """Return the folder, or the workspace's only agent's. Raises NoNetworkAgent."""
    from appliance.sdk.network.folder import NoNetworkAgent

    if folder is None:
        agents = sorted(session.datadir.dir.glob("network/*/agent.json"))
        if not agents:
            raise NoNetworkAgent
        if len(agents) > 1:
            names = ", ".join(path.parent.name for path in agents)
            raise Invalid(f"this workspace has several agents: {names}", hint="add --folder DIR")
        folder = agents[0].parent
    return folder

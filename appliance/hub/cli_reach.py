"""How the hub's commands reach a workspace: reads use the database, changes use the hub.

With AGENTLIP_URL and without --workspace, both use the hub at that address.
"""

import os
from typing import Annotated, Any

import typer

from appliance.cli_support import Session

KeyFlag = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", help="Key for safe retries: the same key returns the first response."
    ),
]


def open_reader(session: Session) -> Any:
    """Open a workspace's database; the hub if only its address is known."""
    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.remotereader import RemoteReader

        return RemoteReader(session.hub())
    from appliance.sdk.reader import WorkspaceReader
    from appliance.workspace.datadir import find_workspace

    return WorkspaceReader(find_workspace(session.workspace).database("hub"))


def segment(text: str) -> str:
    """Return an id as a path segment."""
    from appliance.sdk.paths import path_segment

    return path_segment(text)

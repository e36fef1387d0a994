"""How the hub's commands reach a workspace: its database to read, its hub to change things.

With AGENTLIP_URL and no workspace named, both go to the hub at that address.
"""

import os
from typing import Annotated, Any
from urllib.parse import quote

import typer

from appliance.cli_support import Session
from appliance.kernel.errors import Invalid

KeyFlag = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="The same key again gives the same answer again."),
]


def open_reader(session: Session) -> Any:
    """The database of a workspace; the hub itself where only its address is known."""
    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.remotereader import RemoteReader

        return RemoteReader(hub_client(session))
    from appliance.sdk.discovery import find_workspace
    from appliance.sdk.reader import Reader

    return Reader(find_workspace(session.workspace).database("hub"))


def hub_client(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace))


def segment(text: str) -> str:
    """An id as a piece of a path."""
    if not text:
        raise Invalid("an id must not be empty", hint="agentlip msg tail --topic-id ID shows ids")
    return quote(text, safe="")

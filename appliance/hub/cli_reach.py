"""How the hub's commands reach a workspace: its database to read, its hub to change things."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from appliance.kernel.errors import Invalid
from appliance.terminal import Session

KeyFlag = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="The same key again gives the same answer again."),
]


def open_reader(session: Session) -> Any:
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
        raise Invalid("an id must not be empty")
    return quote(text, safe="")

"""`agentlip ui`: a one-time link that signs a browser in."""

import webbrowser
from typing import Annotated

import typer

from appliance.cli_support import Session, note, plain_app

app = plain_app(listed="Workspace/ui")


@app.command("ui")
def open_ui(
    session: Session,
    token_id: Annotated[
        str | None,
        typer.Option(
            "--token-id",
            metavar="ID",
            help="Sign in with this token's rights (default: the workspace's own).",
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days", min=0.01, max=7, help="Days that the link is valid (default: 15 minutes)."
        ),
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the link without opening a browser.")
    ] = False,
) -> None:
    """Open the web UI, signed in.

    The link works once. For a colleague: agentlip token create --invite

    Example: agentlip ui --print
    """
    lifetime = {} if days is None else {"lifetime_seconds": days * 86_400}
    made = session.sign_in_link(token_id=token_id, **lifetime)
    link = made["link"]
    session.answer(made, link)
    if session.machine:
        return
    note(f"it signs one browser in, once, until {made['expires_at']}")
    if not print_only:
        webbrowser.open(link)

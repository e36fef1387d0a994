"""Command `agentlip log`: a running appliance's log level."""

from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain_app

app = plain_app(
    "The running appliance's log level. agentlipd logs prints the log.\n\n"
    "Example: agentlip log level debug --minutes 10",
    "Administration/log",
)
PATH = "/api/v1/log/level"


@app.command("level")
def level(
    session: Session,
    new: Annotated[
        str | None, typer.Argument(metavar="[LEVEL]", help="debug, info, warning or error.")
    ] = None,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=1440, help="How long LEVEL applies.")
    ] = 60,
) -> None:
    """Show the lowest level that is logged, or set the level for some time, without a restart."""
    hub, body = session.hub(), {"level": new, "minutes": minutes}
    _show(session, hub.get(PATH) if new is None else hub.post(PATH, body))


@app.command("reset")
def reset(session: Session) -> None:
    """Go back to the log level in the settings."""
    _show(session, session.hub().delete(PATH))


def _show(session: Session, state: Any) -> None:
    until = f" until {state['until']}, then {state['configured']}" if state["until"] else ""
    session.answer(state, f"{state['level']}{until}")

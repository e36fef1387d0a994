"""`agentlip maintenance`: refuse writes for some time."""

from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain_app

app = plain_app(
    "Maintenance mode: clients can read, and their writes get 503 with Retry-After.\n\n"
    "Example: agentlip maintenance on --until 2026-12-24T18:00Z --reason 'new disk'",
    "Administration/maintenance",
)
PATH = "/api/v1/maintenance"


@app.command("on")
def begin(
    session: Session,
    until: Annotated[str, typer.Option("--until", help="Its end as ISO 8601; UTC without a zone.")],
    reason: Annotated[str, typer.Option("--reason", help="A text for other operators.")] = "",
) -> None:
    """Refuse writes until a time at most 7 days away. A restart does not end it."""
    _show(session, session.hub().post(PATH, {"until": until, "reason": reason}))


@app.command("off")
def end(session: Session) -> None:
    """Accept writes again."""
    _show(session, session.hub().delete(PATH))


@app.command("status")
def show(session: Session) -> None:
    """Show whether writes are refused, and until when."""
    _show(session, session.hub().get(PATH))


def _show(session: Session, state: Any) -> None:
    reason = f" ({state['reason']})" if state["reason"] else ""
    session.answer(state, f"on until {state['until']}{reason}" if state["on"] else "off")

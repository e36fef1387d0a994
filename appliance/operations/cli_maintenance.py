"""`agentlip maintenance`: refuse writes for some time."""

import re
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain_app
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid
from appliance.operations.wire import BadEndOfMaintenance

app = plain_app(
    "Maintenance mode: clients can read, and their writes get 503 with Retry-After.\n\n"
    "Example: agentlip maintenance on --for 30m --reason 'new disk'",
    "Administration/maintenance",
)
PATH = "/api/v1/maintenance"


@app.command("on")
def begin(
    session: Session,
    until: Annotated[
        str | None, typer.Option("--until", help="End time in ISO 8601; UTC without a zone.")
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", help="Length instead of an end: 90s, 30m, 2h or 1d.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="A text for other operators.")] = "",
) -> None:
    """Refuse writes until a time at most 7 days away. A restart does not end it."""
    if (until is None) == (length is None):
        raise Invalid("give either --until or --for", hint=BadEndOfMaintenance.default_hint)
    end = {"seconds": _seconds_of(length)} if length is not None else {"until": _time_of(until)}
    command = end | {"reason": reason}
    _show(session, session.hub().post(PATH, command))


@app.command("off")
def end(session: Session) -> None:
    """Accept writes again."""
    _show(session, session.hub().delete(PATH))


@app.command("status")
def show(session: Session) -> None:
    """Show whether writes are refused, and until when."""
    _show(session, session.hub().get(PATH))


def _seconds_of(length: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([smhd])", length.strip())
    if match is None:
        raise Invalid(f"--for {length}: no length", hint=BadEndOfMaintenance.default_hint)
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


def _time_of(text: str | None) -> str:
    try:
        return utc(text or "")
    except ValueError:
        raise Invalid(f"--until {text}: no time", hint=BadEndOfMaintenance.default_hint) from None


def _show(session: Session, state: Any) -> None:
    reason = f" ({state['reason']})" if state["reason"] else ""
    session.answer(state, f"on until {state['until']}{reason}" if state["on"] else "off")

"""`agentlip toy`: notes on the command line."""

from appliance.cli_support import Session, plain_app

app = plain_app("Notes.", "Messages/toy")


@app.callback()
def _toy() -> None:
    """Makes Typer keep `list` as a subcommand while it is the only one."""


@app.command("list")
def list_notes(session: Session) -> None:
    """List all notes."""
    notes = session.hub().get("/toy/v1/notes")["notes"]
    session.answer({"notes": notes}, "\n".join(notes))

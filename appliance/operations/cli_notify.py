"""`agentlip notify`: messages to the operator."""

from typing import Annotated

import typer

from appliance.cli_support import Session, plain_app

app = plain_app(
    "Messages to the operator, sent to the destinations in the [notify] settings.\n\n"
    "Example: agentlip notify test",
    "Administration/notify",
)
COLUMNS = (("TO", "to"), ("VIA", "via"), ("PROBLEM", "problem"))


@app.callback()
def group() -> None:
    """Keep `test` as a separate command."""


@app.command("test")
def send_test(
    session: Session,
    direct: Annotated[
        bool, typer.Option("--direct", help="Send without the outbox, as is done when it fails.")
    ] = False,
) -> None:
    """Send a test message to all destinations. Exit code 1 if one does not arrive.

    Waits up to 22 seconds for the outbox's first attempts. PROBLEM has the destination's
    reply; the outbox goes on: agentlip outbox list.
    """
    tested = session.hub().post("/api/v1/notify/test", {"direct": direct})
    session.table(tested["results"], COLUMNS, "no destinations")
    if any(result["problem"] for result in tested["results"]):
        raise typer.Exit(1)

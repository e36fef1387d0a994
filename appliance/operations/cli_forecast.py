"""`agentlip forecast`: the days until disks are full."""

from typing import Annotated

import typer

from appliance.cli_support import Session, plain_app

app = plain_app(listed="Administration/forecast")
DISK_COLUMNS = (("DISK OR STORE", "name"), ("BYTES", "bytes"), ("FREE", "free_bytes"),
                ("GROWTH A DAY", "growth_bytes_per_day"), ("DAYS TO FULL", "days_to_full"),
                ("REDUCED BY", "command"))  # fmt: skip


@app.command()
def forecast(
    session: Session,
    span: Annotated[str, typer.Option("--range", help="Samples for the trend: 1h or 14d.")] = "14d",
) -> None:
    """Show in how many days each disk is full, which stores grow, and what can be reduced."""
    answer = session.hub().get("/api/v1/forecast", range=span)
    if session.machine:
        session.answer(answer, "")
        return
    rows = [{"name": f"disk with {', '.join(disk['of'])}", **disk} for disk in answer["disks"]]
    rows += [{"name": store["store"], **store} for store in answer["stores"]]
    rows += [{"name": row["what"], **row} for row in answer["reducible"]]
    session.table(rows, DISK_COLUMNS, "no disk can be read")

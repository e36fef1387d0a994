"""`agentlip top` and `agentlip forecast`: what the appliance does now, and when disks are full."""

import time
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain_app, until_signalled, write_line

top_app = plain_app(listed="Administration/top")
forecast_app = plain_app(listed="Administration/forecast")
PATH = "/api/v1/rates"
CLEAR = "\x1b[H\x1b[2J"
MEAN_OF = 6  # samples: one minute
TOP_COLUMNS = (("SERIES", "title"), ("NOW", "now"), ("MEAN OF A MINUTE", "mean"), ("UNIT", "unit"))
DISK_COLUMNS = (("DISK OR STORE", "name"), ("BYTES", "bytes"), ("FREE", "free_bytes"),
                ("GROWTH A DAY", "growth_bytes_per_day"), ("DAYS TO FULL", "days_to_full"),
                ("REDUCED BY", "command"))  # fmt: skip


@top_app.command()
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Print once, then exit.")] = False,
) -> None:
    """Show rates, queues, lags, connections and the delay of the event loop, until Ctrl-C.

    The same data as the page Rates of the web UI: one sample every 10 seconds.
    """
    client = session.hub()
    with until_signalled():
        while True:
            rates = client.get(PATH)
            rows = [row for row in map(_latest, rates["series"]) if session.machine or row["now"]]
            if not (once or session.machine):
                write_line(CLEAR)
            session.table(rows, TOP_COLUMNS, "nothing happens")
            if once:
                return
            time.sleep(rates["interval_seconds"])


def _latest(series: dict[str, Any]) -> dict[str, Any]:
    recent = series["values"][-MEAN_OF:] or [0.0]
    mean = float(f"{sum(recent) / len(recent):.4g}")
    names = {name: series[name] for name in ("name", "title", "unit", "metric")}
    return names | {"now": recent[-1], "mean": mean}


@forecast_app.command()
def forecast(session: Session) -> None:
    """Show in how many days each disk is full, which stores grow, and what can be reduced."""
    answer = session.hub().get("/api/v1/forecast")
    if session.machine:
        session.answer(answer, "")
        return
    rows = [{"name": f"disk of {', '.join(disk['of'])}", **disk} for disk in answer["disks"]]
    rows += [{"name": store["store"], **store} for store in answer["stores"]]
    rows += [{"name": row["what"], **row} for row in answer["reducible"]]
    session.table(rows, DISK_COLUMNS, "no disk can be read")

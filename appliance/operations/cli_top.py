"""Command `agentlip top`: the running appliance's rates and lags."""

import time
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain_app, until_signalled, write_line

app = plain_app(listed="Administration/top")
PATH = "/api/v1/rates"
CLEAR = "\x1b[H\x1b[2J"
MEAN_OF = 6  # samples: one minute
TOP_COLUMNS = (("SERIES", "title"), ("NOW", "now"), ("MEAN OF A MINUTE", "mean"), ("UNIT", "unit"))


@app.command()
def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Print once, then exit.")] = False,
) -> None:
    """Show rates, queues, lags, connections and event loop delay, until Ctrl-C.

    Shows the data that the page Rates shows in the web UI: one sample every 10 seconds.
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

"""Rates and the forecast: ranges, axes, and the same numbers as /metrics."""

import json
import time
from itertools import pairwise

import pytest

from tests.support.axe import is_accessible
from tests.support.operated_workspace import fill_queues, fill_sends
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow
FAST = {"appliance.operations.rates.Sampler.interval_seconds": 0.2}
HOUR_MS = 3_600_000
SENDS = "agentlip_outbox_sends_total"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui"), constants=FAST) as hub:
        fill_queues(hub)
        fill_sends(hub)
        yield hub


def metric(hub, name, labels=""):
    lines = hub.http.get("/metrics").raw.decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith(name) and labels in line
    )


def figure(page, title):
    script = (
        "[...document.querySelectorAll('.charts figure')]"
        f".find((each) => each.innerText.startsWith('{title}'))?.innerText || ''"
    )
    return page.tab.evaluate(script)


def test_chart_shows_the_number_that_metrics_have(hub):
    now = f"{metric(hub, 'agentlip_courier_envelopes'):g}"
    assert now == "3"
    with ui_page(hub) as page:
        page.go("#/operate?view=rates")
        title = "Envelopes in the courier"
        until(lambda: figure(page, title).split("\n")[:2] == [title, now], 20, "the number")
        assert figure(page, title).split("\n")[2:5] == ["5", "2.5", "0"]
        assert page.tab.problems == []


def test_rates_over_time_sum_to_the_counter(hub):
    until(lambda: accepted(hub) is not None, 20, "there are samples")
    counter, total = metric(hub, SENDS), accepted(hub)
    send = {"to": "#nobody", "message": "again", "mesh": "lab"}
    assert hub.http.post("/v1/send", send).status == 202
    until(lambda: metric(hub, SENDS) == counter + 1, 20, "the send is counted")
    until(lambda: accepted(hub) - total == pytest.approx(1, rel=0.2), 20, "the rate sums to it")


def accepted(hub):
    """Return the sends that the rates have, over all samples; None without samples."""
    rates = hub.http.get("/api/v1/rates").body
    values = next(row["values"] for row in rates["series"] if row["name"] == "sends")
    spans = [later - first for first, later in pairwise(rates["at_ms"])]
    if not spans:
        return None
    return sum(value * span / 1000 for value, span in zip(values[1:], spans, strict=True))


def test_range_is_chosen_and_in_the_address(page):
    page.go("#/operate?view=rates")
    page.sees("A point every", ".view")
    page.choose(".operate select", "7d")
    page.sees("A point every 30 min", ".view")
    page.sees("the appliance keeps samples while it runs", ".view")
    assert "range=7d" in page.tab.evaluate("location.hash")
    page.tab.resize(400, 760)
    page.choose(".operate select", "24h")
    page.sees("A point every 5 min", ".view")


def test_forecast_draws_stored_samples_with_a_trend(tmp_path):
    now = int(time.time() * 1000)
    samples = [
        {"at_ms": now - hours * HOUR_MS, "values": {"hub": 900_000_000 - hours * 1_000_000}}
        for hours in range(300, 0, -1)
    ]
    with serve(tmp_path) as hub:
        hub.kill()
        (hub.datadir.dir / "growth.json").write_text(json.dumps(samples))
        hub.start()
        with ui_page(hub) as page:
            page.go("#/operate?view=forecast")
            page.has(".charts .trend")
            until(lambda: "1 GB" in figure(page, "hub"), 20, "the axis")
            dots = "document.querySelector('.charts polyline')?.points.length || 0"
            whole = page.tab.evaluate(dots)
            page.choose(".operate select", "24h")
            until(lambda: 0 < page.tab.evaluate(dots) <= 25 < whole, 20, "one day")
            is_accessible(page.tab, "forecast")
            page.choose(".operate select", "1h")
            text = "document.querySelector('.operate').innerText"
            until(lambda: "every 5 minutes" in page.tab.evaluate(text), 20, "one hour")

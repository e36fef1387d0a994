"""`agentlip top` and `agentlip forecast` of a served appliance."""

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    made = ServedHub(tmp_path_factory.mktemp("hub"))
    made.constants = {"appliance.operations.rates.Sampler.interval_seconds": 0.5}
    with made.running():
        yield made


def test_forecast_knows_disks_and_stores_of_this_appliance(hub):
    answer = hub.http.get("/api/v1/forecast").body
    assert answer["disks"][0]["of"][0] == "workspace"
    assert answer["disks"][0]["free_bytes"] > 0
    names = {store["store"] for store in answer["stores"]}
    assert {"hub", "outbox", "courier"} <= names
    assert agentlip("forecast", "--json", cwd=hub.workspace).json["disks"][0]["size_bytes"] > 0
    shown = agentlip("forecast", cwd=hub.workspace)
    assert "disk with workspace" in shown.out
    assert (hub.datadir.dir / "growth.json").exists()


def test_top_has_the_series_of_the_web_ui(hub):
    hub.channel("a")
    until(lambda: hub.http.get("/api/v1/rates").body["at_ms"], 30, "a round of samples")
    served = hub.http.get("/api/v1/rates").body["series"]
    rows = agentlip("top", "--once", "--json", cwd=hub.workspace).json
    assert [row["name"] for row in rows] == [series["name"] for series in served]
    assert {"loop_delay", "sockets", "writes", "export_lag"} <= {row["name"] for row in rows}
    text = agentlip("top", "--once", cwd=hub.workspace).out
    assert "Memory in use" in text
    assert "\x1b" not in text

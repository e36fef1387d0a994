"""The series in `/metrics` of a whole appliance, and their number."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from appliance.monitoring.metrics import metric_of
from tests.support.servedhub import serve

# Facts for which the courier has a metric with more labels.
COUNTED_BY_COURIER = {
    "courier.dead": "courier_envelopes",
    "courier.oldest_ready_seconds": "courier_oldest_ready_seconds",
    "courier.paused": "courier_streams_paused",
    "courier.streams": "courier_streams",
}
SERIES_MAX = 1200  # a scrape of 1,000 takes 5 ms
NAMES = 40


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("metrics"), "--no-limits") as hub:
        yield hub


def series(hub):
    """Value by name and labels."""
    families = text_string_to_metric_families(hub.http.get("/metrics").raw.decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_each_fact_of_the_doctor_is_one_metric(hub):
    names = [key[0] for key in series(hub)]
    facts = hub.http.get("/-/ready").body["facts"]
    assert len(facts) > 100
    for fact in facts:
        name = COUNTED_BY_COURIER.get(fact, metric_of(fact)[0])
        wanted = {f"agentlip_{name}", f"agentlip_{name}_total"}
        assert wanted & set(names), fact


def test_names_chosen_by_clients_never_become_labels(hub):
    for number in range(NAMES):
        use(hub, f"name-{number}")
    after = series(hub)
    chosen = [key for key in after if any("name-" in value for _, value in key[1:])]
    assert {name for name, *_ in chosen} <= {"agentlip_bus_lag_messages"}
    assert len(chosen) <= 20, "the agents with most"
    assert len(after) < SERIES_MAX


def use(hub, name):
    """Requests with a name of the client's in each place that could become a label."""
    _, topic = hub.channel_with_topic(name)
    hub.send(topic, name)
    envelope = {"id": name, "ts": "2026-01-01T00:00:00Z", "type": name, "payload": {}}
    assert hub.http.post("/v1/enqueue", {"to": name, "envelope": envelope}).status == 200
    message = {"from_agent": name, "to_agent": name, "type": name, "payload": {}}
    assert hub.http.post("/bus/v1/messages", message).status == 201
    hub.http.get(f"/nothing/{name}?{name}", headers={"X-Request-ID": name})
    hub.http(f"X{name.upper()}", "/health")
    hub.http.post("/v1/send", {"to": f"#{name}", "message": "x", "client_message_id": name})
    hub.http.get("/health", headers={"Host": name})
    hub.http.get("/api/v1/channels", headers={"Authorization": f"Bearer {name}"})

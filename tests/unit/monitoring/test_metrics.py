"""Facts of the doctor become metrics by one rule."""

import pytest
from prometheus_client import CollectorRegistry

from appliance.monitoring.metrics import FactCollector, metric_of


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.mark.parametrize(
    ("fact", "metric"),
    [
        ("hub.wal_bytes", ("store_wal_bytes", "hub")),
        ("plugin.my.links.paused", ("plugins_paused", "my.links")),
        ("plugin.links.open_network", ("plugins_open_network", "links")),
        ("off.relay", ("role_off", "relay")),
        ("lock_intact", ("lock_intact", "")),
        ("courier.full", ("courier_full", "")),
        ("courier.dead", None),
    ],
)
def test_fact_has_the_metric_of_its_group(fact, metric):
    assert metric_of(fact) == metric


def test_facts_are_read_at_each_scrape(registry):
    facts = {"hub.wal_bytes": 1.0, "toy.notes": 2.0, "hub.writer_restarts": 3.0}
    collector = FactCollector()
    registry.register(collector)
    collector.watch(lambda: facts)
    facts["hub.wal_bytes"] = 5.0
    value = registry.get_sample_value
    assert value("agentlip_store_wal_bytes", {"store": "hub"}) == 5.0
    assert value("agentlip_store_writer_restarts_total", {"store": "hub"}) == 3.0
    assert [family.name for family in registry.collect()].count("agentlip_toy_notes") == 1

"""Facts of the doctor become metrics by one rule."""

import pytest

from appliance.monitoring.metrics import metric_of


@pytest.mark.parametrize(
    ("fact", "metric"),
    [
        ("hub.wal_bytes", ("store_wal_bytes", "hub")),
        ("plugin.my.links.paused", ("plugins_paused", "my.links")),
        ("plugin.links.open_network", ("plugins_open_network", "links")),
        ("off.relay", ("role_off", "relay")),
        ("lock_intact", ("lock_intact", "")),
        ("courier.full", ("courier_full", "")),
    ],
)
def test_fact_has_the_metric_of_its_group(fact, metric):
    assert metric_of(fact) == metric

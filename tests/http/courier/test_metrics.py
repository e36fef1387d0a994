"""The metrics of the courier as Prometheus text."""

from tests.support.courier import INBOX
from tests.support.courier_http import enqueue


def test_metrics_are_text_if_accept_asks_for_text(client):
    enqueue(client, "e-1")
    result = client.simulate_get("/v1/metrics", headers={"Accept": "text/plain"})
    assert "agentlip_courier_enqueued_total" in result.text
    assert "agentlip_courier_oldest_ready_seconds" in result.text
    assert "agentlip_courier_triggers_total" in result.text
    assert "agentlip_loop_rounds_total" not in result.text  # only the courier's metrics
    assert INBOX not in result.text

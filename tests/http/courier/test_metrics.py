"""The metrics of the courier as Prometheus text."""

from tests.support.courier import INBOX, CourierFixture
from tests.support.courier_http import enqueue, get, post, receive


def test_metrics_are_text_if_accept_asks_for_text(client):
    enqueue(client, "e-1")
    result = client.simulate_get("/v1/metrics", headers={"Accept": "text/plain"})
    assert "agentlip_courier_enqueued_total" in result.text
    assert "agentlip_courier_oldest_ready_seconds" in result.text
    assert "agentlip_courier_triggers_total" in result.text
    assert "agentlip_loop_rounds_total" not in result.text  # only the courier's metrics
    assert INBOX not in result.text


def test_counters_keep_their_value_when_a_stream_is_forgotten():
    streams = [{"pattern": "orders/*"}]
    courier = CourierFixture(streams=streams, idle_seconds=1.0, recent_seconds=1.0)
    client = courier.client()
    enqueue(client, "a", to="orders/eu")
    got = receive(client, "orders/eu")
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["a"]})

    def counted():
        text = client.simulate_get("/v1/metrics", headers={"Accept": "text/plain"}).text
        wanted = ("_acked_total{", "_delivery_seconds_count{", "_enqueued_total{")
        return sorted(line for line in text.splitlines() if any(name in line for name in wanted))

    before = counted()
    for _ in range(5):
        courier.pass_ms(1000)
    get(client, "/v1/stats", 404, stream="orders/eu")
    assert counted() == before
    assert 'agentlip_courier_acked_total{pattern="orders/*"} 1.0' in before

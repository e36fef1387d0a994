"""Durable streams of a served appliance survive kills."""

import pytest

from tests.support.courier import (
    TOML,
    enqueue,
    envelope,
    opened,
    receive_frame,
    send,
    stats,
    subscribed,
)
from tests.support.database_files import read
from tests.support.hubprocess import HubProcess
from tests.support.until import until

pytestmark = pytest.mark.slow


def rows(hub, table="journal"):
    return read(hub.datadir.database("courier"), f"SELECT count(*) FROM {table}")[0][0]


def stream_exists(hub, stream):
    return stream in [row["id"] for row in hub.request("GET", "/v1/stats")["streams"]]


def test_durable_streams_survive_kill_9_and_boot_id_changes(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    with hub.running():
        first = enqueue(hub, "durable/a", *(f"e{number}" for number in range(50)))
        enqueue(hub, "durable/a", "late", delayMs=60_000)
        enqueue(hub, "durable/a", "k1", "k2", partitionKey="k")
        enqueue(hub, "memory/a", "m")
        with subscribed(hub, "durable/a", "&credit=40") as consumer:
            ids = [receive_frame(consumer)["deliver"]["id"] for _ in range(40)]
            send(consumer, ack=ids[:20])
            send(consumer, nack=ids[20], mode="reject", error="no")
            until(lambda: stats(hub, "durable/a")["dead"] == 1, 10, "it is a dead letter")
            until(lambda: rows(hub) == 33, 10, "the acks are written")
            hub.kill()
        hub.start()
        figures = stats(hub, "durable/a")
        assert (figures["ready"], figures["delayed"], figures["inflight"], figures["dead"]) == (
            31,
            1,
            0,
            1,
        )
        assert figures["boot_id"] != first["boot_id"]
        with subscribed(hub, "durable/a", "&credit=40") as consumer:
            redelivered = [receive_frame(consumer)["deliver"]["id"] for _ in range(30)]
        assert redelivered == [f"e{number}" for number in range(21, 50)] + ["k1"]
        dead = hub.request("GET", "/v1/peek?stream=durable/a&state=dead")["envelopes"][0]
        assert (dead["reason"], dead["error"]) == ("rejected", "no")
        assert not stream_exists(hub, "memory/a")


def test_confirmed_envelopes_survive_kill_9_while_publishing(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    hub = HubProcess(tmp_path, "--no-limits")
    hub.start()
    confirmed = []
    try:
        with opened(hub, "/v1/publish") as socket_:
            for number in range(300):
                send(socket_, seq=number, to="durable/b", envelope=envelope(f"e{number}"))
            while len(confirmed) < 100:
                confirmed = range(receive_frame(socket_)["accepted"] + 1)
            hub.kill()
        hub.start()
        depth = stats(hub, "durable/b")["ready"]
        assert depth >= len(confirmed)
        with subscribed(hub, "durable/b", "&credit=300") as socket_:
            ids = [receive_frame(socket_)["deliver"]["id"] for _ in range(depth)]
        assert ids == [f"e{number}" for number in range(depth)]
    finally:
        hub.stop()

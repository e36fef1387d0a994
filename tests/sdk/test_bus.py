"""Agents of the SDK: one works on the file, one over HTTP, on the same bus."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from appliance.busfile import heartbeats
from appliance.busfile.claims import ClaimHeld, ClaimLost
from appliance.busfile.file import connect
from appliance.kernel.errors import Invalid
from appliance.sdk import bus as sdk_bus
from appliance.sdk.bus import FileBus, HttpBus
from tests.support.until import until


@pytest.fixture(params=["file", "http"])
def join(request, hub):
    """Makes an agent of each kind, whose name is unique to the test."""
    kind = FileBus if request.param == "file" else HttpBus

    def make(name):
        return kind(f"{name}-{request.node.name}", workspace=hub.datadir.workspace)

    return make


def test_handled_messages_are_acked_up_to_the_first_failure(join):
    ada, bob = join("ada"), join("bob")
    for number in range(3):
        ada.publish("work", number, to=bob.agent)
    handled = []

    def handler(message):
        if message.payload == 1 and message.payload not in handled:
            handled.append(1)
            raise ValueError
        if message.to_agent == bob.agent:
            handled.append(message.payload)

    with pytest.raises(ValueError):
        bob.consume(handler, wait=0)
    bob.consume(handler, wait=0)

    assert handled == [0, 1, 1, 2]
    assert bob.poll() == []


def test_wait_ends_when_the_claim_is_released(join, task, monkeypatch):
    monkeypatch.setattr(sdk_bus, "REQUEST_WAIT_SECONDS_MAX", 0.2)
    ada, bob = join("ada"), join("bob")
    first = ada.claim(task)
    with pytest.raises(ClaimHeld, match=r"has task-"):
        bob.claim(task)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bob.claim, task, wait=30)
        ada.renew(task, first.fence)
        assert ada.release(task, first.fence)
        second = waiting.result(30)
    assert second.fence > first.fence
    with pytest.raises(ClaimLost):
        ada.renew(task, first.fence)


def test_stream_begins_with_stored_messages_and_continues_with_new_ones(join):
    ada, bob = join("ada"), join("bob")
    first = ada.publish("work", 1, to=bob.agent)
    ada.publish("work", 2, to="nobody")
    following = bob.follow(first.seq - 1)
    assert next(following).payload == 1
    ada.publish("work", "x" * 100_000, to=bob.agent)
    assert next(following).payload == "x" * 100_000
    following.close()
    everything = bob.follow(first.seq, every=True)
    assert [next(everything).to_agent for _ in range(2)] == ["nobody", bob.agent]
    everything.close()


def test_stream_continues_after_a_break_without_a_gap(hub):
    ada, bob = (HttpBus(f"break-{name}", workspace=hub.datadir.workspace) for name in "ab")
    first = ada.publish("work", 0, to=bob.agent)
    following = bob.follow(first.seq - 1)
    assert next(following).payload == 0
    (connection,) = bob._hubs._lent
    connection._connection.sock.shutdown(socket.SHUT_RDWR)
    for number in range(1, 4):
        ada.publish("work", number, to=bob.agent)
    assert [next(following).payload for _ in range(3)] == [1, 2, 3]


def test_close_ends_a_wait_over_http(hub):
    bus = HttpBus("closed-http", workspace=hub.datadir.workspace)
    bus.ack(bus.publish("work", to="nobody").seq)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bus.poll, wait=600)
        until(lambda: any(hub._connection for hub in bus._hubs._lent.copy()))
        bus.close()
        with pytest.raises(Invalid, match="closed"):
            waiting.result(10)


def test_heartbeats_continue_while_the_agent_blocks(join, hub, monkeypatch):
    monkeypatch.setattr(heartbeats, "INTERVAL_SECONDS", 0.01)
    ada = join("ada")

    def row():
        query = "SELECT status, current_task, progress, ts_ms FROM heartbeats WHERE agent_id = ?"
        with closing(connect(FileBus("ada", hub.datadir.workspace).paths)) as connection:
            return connection.execute(query, (ada.agent,)).fetchone()

    with ada.heartbeat("working", "t") as heartbeat:
        first = row()
        assert first[:3] == ("working", "t", None)
        until(lambda: row()[3] > first[3])
        heartbeat.report("blocked", "t", 0.5)
        until(lambda: row()[:3] == ("blocked", "t", 0.5))
    assert heartbeat.stop()

"""Agents of the SDK: one works on the file, one over HTTP, on the same bus."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import pytest

from appliance.busfile import heartbeats, workers
from appliance.busfile.claims import ClaimHeld, ClaimLost
from appliance.busfile.file import connect, transaction
from appliance.busfile.messages import MessageIdReused
from appliance.busfile.workers import StaleState, UnknownTask
from appliance.kernel.errors import Invalid
from appliance.sdk import bus as sdk_bus
from appliance.sdk.bus import FileBus, HttpBus
from appliance.sdk.http import ConnectionBroken, HubClient
from tests.support.until import until


@pytest.fixture(params=["file", "http"])
def join(request, hub):
    """Makes an agent of each kind, whose name is unique to the test."""
    kind = FileBus if request.param == "file" else HttpBus

    def make(name):
        return kind(f"{name}-{request.node.name}", workspace=hub.datadir.workspace)

    return make


@pytest.fixture
def task(request):
    return f"task-{request.node.name}".replace("[", "-").replace("]", "")


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


def test_large_payload_arrives_whole(join):
    bob = join("bob")
    join("ada").publish("work", "x" * 100_000, to=bob.agent)
    assert [m.payload for m in bob.poll() if m.to_agent == bob.agent] == ["x" * 100_000]


def test_same_id_publishes_once_and_other_content_is_refused(join, task):
    ada = join("ada")
    first = ada.publish("work", 1, to="nobody", id=task)
    again = ada.publish("work", 1, to="nobody", id=task)
    assert (again.seq, again.duplicate) == (first.seq, True)
    with pytest.raises(MessageIdReused):
        ada.publish("work", 2, to="nobody", id=task)


@pytest.fixture
def lost(monkeypatch):
    """The first reply, which does not arrive."""
    ask, replies = HubClient._ask, []

    def lose_first(self, *arguments):
        reply = ask(self, *arguments)
        if not replies:
            replies.append(reply)
            raise ConnectionBroken
        return reply

    monkeypatch.setattr(HubClient, "_ask", lose_first)
    return replies


def test_claim_repeated_after_lost_reply_is_the_same_claim(hub, task, lost):
    with HttpBus("ada", workspace=hub.datadir.workspace) as ada:
        claim = ada.claim(task)
    assert lost == [msgspec.to_builtins(claim)]


def test_publish_repeated_after_lost_reply_is_one_message(hub, lost):
    ada, bob = (HttpBus(name, workspace=hub.datadir.workspace) for name in ("ada", "lost-bob"))
    published = ada.publish("work", 1, to=bob.agent)

    assert lost
    assert published.duplicate
    assert len([m for m in bob.poll() if m.to_agent == bob.agent]) == 1


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


def test_state_changes_if_it_is_what_it_was(join, hub, task):
    ada = join("ada")
    ada.beat("working", task, 0.5)
    with pytest.raises(UnknownTask):
        ada.transition(task, "ASSIGNED", "WORKING")
    paths = FileBus("ada", hub.datadir.workspace).paths
    with closing(connect(paths)) as connection, transaction(connection):
        workers.create(connection, 1, task, branch=None, actor="ada")
    ada.transition(task, "ASSIGNED", "WORKING")
    assert [row.state for row in ada.status() if row.task == task] == ["WORKING"]
    with pytest.raises(StaleState):
        ada.transition(task, "ASSIGNED", "FAILED")


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


def test_stream_without_a_number_begins_with_new_messages(join):
    ada, bob = join("ada"), join("bob")
    ada.publish("work", "old", to=bob.agent)
    with ThreadPoolExecutor() as pool:
        following = bob.follow()
        waiting = pool.submit(next, following)
        until(lambda: ada.publish("work", "new", to=bob.agent) and waiting.done())
        assert waiting.result().payload == "new"
        ending = pool.submit(list, following)
        bob.close()
        assert {message.payload for message in ending.result(30)} <= {"new"}


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


def test_close_ends_a_wait_on_the_file(hub):
    bus = FileBus("closed", hub.datadir.workspace)
    bus.ack(bus.publish("work", to="nobody").seq)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bus.poll, wait=600)
        bus.close()
        with pytest.raises(Invalid, match="closed"):
            waiting.result(30)

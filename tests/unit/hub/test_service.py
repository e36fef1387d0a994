"""Callers that replay the log take turns: one piece of each is read at a time."""

import gevent
import pytest

from appliance.hub import queries, wire
from appliance.hub.sse import HubEventSource
from appliance.kernel.auth import ANONYMOUS

COUNT = 6


def replay_by_stream(hub, who):
    source = HubEventSource(hub, wire.StreamQuery(after=0), None, who)
    try:
        assert b"id: 2" in b"".join(source.begin())
    finally:
        source.end()


def replay_by_page(hub, who):
    assert b'"event_id":2' in hub.list_events(wire.EventsQuery(after=0), who)


@pytest.mark.parametrize("replay", [replay_by_stream, replay_by_page])
@pytest.mark.parametrize(("who", "at_once"), [("alice", 1), ("both", 2), (ANONYMOUS, 1)])
def test_one_piece_of_each_caller_is_read_at_a_time(env, replay, who, at_once):
    for name in ("one", "two"):
        env.hub.create_channel(wire.CreateChannel(name), env.alice)
    read, reading, seen = env.store.read, [], []

    def counted(function, *args):
        if function not in (queries.replay, queries.list_events):
            return read(function, *args)
        reading.append(function)
        seen.append(len(reading))
        gevent.sleep(0)
        try:
            return read(function, *args)
        finally:
            reading.pop()

    env.hub.store.read = counted
    callers = {"alice": [env.alice], "both": [env.alice, env.bob]}.get(who, [who])
    running = [gevent.spawn(replay, env.hub, caller) for _ in range(COUNT) for caller in callers]
    gevent.joinall(running, timeout=20, raise_error=True)
    assert len(seen) >= COUNT
    assert max(seen) == at_once

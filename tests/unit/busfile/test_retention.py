"""Lag, retired cursors, pruning and orphans."""

import os

import pytest

from appliance.busfile import messages, retention
from appliance.busfile.messages import NewMessage
from appliance.kernel.clock import DAY_MS
from appliance.kernel.errors import Missing
from tests.support.bus import NOW

LATER = NOW + 30 * DAY_MS


def ack(bus, agent, seq, now=NOW):
    bus.run(messages.ack, now, agent, seq)


def publish(bus, to_agent=None, now=NOW):
    message = NewMessage(from_agent="f", type="t", to_agent=to_agent)
    return bus.run(messages.publish, now, message, lag_max=3)


def test_publish_names_the_live_agent_that_is_too_far_behind(bus):
    ack(bus, "slow", 0)
    for _ in range(3):
        publish(bus)
    for to_agent in (None, "slow"):
        with pytest.raises(retention.AgentLags, match="slow has more than 3 messages"):
            publish(bus, to_agent)
    publish(bus, "other")
    ack(bus, "slow", 1)
    publish(bus)
    assert publish(bus, now=NOW + 8 * DAY_MS).seq == 6  # not live anymore


def test_prune_stops_at_live_cursors_exporter_and_segments(bus):
    for _ in range(10):
        bus.send()
    assert bus.run(retention.prunable, LATER) == 10
    ack(bus, "a", 6, LATER)
    ack(bus, "dead", 2)
    assert bus.run(retention.prunable, LATER) == 6
    bus.run(lambda connection: connection.execute("UPDATE export_state SET last_seq = 5"))
    for held, expected in ((7, 5), (4, 4), (0, 0), (None, 5)):
        bus.run(retention.hold, held)
        assert bus.run(retention.prunable, LATER) == expected
    assert bus.run(retention.prune, LATER, DAY_MS) == 5
    assert [message.seq for message in bus.run(messages.newest, 9)] == [6, 7, 8, 9, 10]
    assert bus.run(retention.prune, LATER, 31 * DAY_MS) == 0


def test_retired_cursor_holds_nothing_back_until_the_next_ack(bus):
    for _ in range(5):
        bus.send()
    ack(bus, "a", 2)
    assert bus.run(retention.prunable, NOW) == 2
    assert bus.run(retention.retire_cursor, NOW, "a") == 2
    assert bus.run(retention.prunable, NOW) == 5
    assert [row.live for row in bus.run(retention.cursors, NOW)] == [False]
    ack(bus, "a", 3)
    assert bus.run(retention.prunable, NOW) == 3
    with pytest.raises(Missing, match="b has no cursor"):
        bus.run(retention.retire_cursor, NOW, "b")


def test_heartbeat_keeps_a_cursor_live(bus):
    bus.send()
    ack(bus, "a", 0)
    assert bus.run(retention.prunable, LATER) == 1
    beat = "INSERT INTO heartbeats VALUES ('a', ?, 'idle', NULL, NULL)"
    bus.run(lambda connection: connection.execute(beat, (LATER - DAY_MS,)))
    assert bus.run(retention.prunable, LATER) == 0


def test_orphans_and_missing_blobs(bus):
    for text in ("a", "b", "c"):
        bus.send(payload=text * 5000)
    refs = [ref for (ref,) in bus.rows("SELECT payload_ref FROM messages ORDER BY seq")]
    bus.run(lambda connection: connection.execute("DELETE FROM messages WHERE seq < 3"))
    (bus.paths.blobs / refs[2]).unlink()
    (bus.paths.blobs / ".sha256-part.1").touch()
    os.utime(bus.paths.blobs / refs[0], (1, NOW / 1000))
    os.utime(bus.paths.blobs / refs[1], (1, NOW / 1000 - 7200))
    assert bus.run(retention.missing_blobs, bus.paths.blobs) == [refs[2]]
    orphans = bus.run(retention.orphan_blobs, bus.paths.blobs, NOW, ())
    assert orphans == [bus.paths.blobs / refs[1]]

"""Publish, poll, ack, threads, and payloads in blobs."""

import json

import pytest

from appliance.busfile import messages
from appliance.busfile.messages import MessageIdReused, NewMessage
from appliance.kernel.errors import Invalid, PayloadTooLarge
from tests.support.bus import NOW

LARGE = "ü" * 3000  # 3,002 characters as JSON, but 6,002 bytes


def test_messages_are_polled_in_order_until_acked(bus):
    for to in ("a", None, "b", "a"):
        bus.send(to_agent=to, payload={"to": to})
    assert [message.seq for message in bus.poll("a")] == [1, 2, 4]
    assert [message.seq for message in bus.poll("a", limit=2)] == [1, 2]
    assert bus.run(messages.ack, NOW, "a", 2) == 2
    assert [message.payload for message in bus.poll("a")] == [{"to": "a"}]
    assert [message.seq for message in bus.poll("b")] == [2, 3]
    assert bus.run(messages.ack, NOW, "a", 1) == 2  # never back


@pytest.mark.parametrize("seq", [-1, 2])
def test_ack_of_a_number_without_message_is_refused(bus, seq):
    bus.send()
    with pytest.raises(Invalid, match="the last one is 1"):
        bus.run(messages.ack, NOW, "a", seq)


def test_repeated_publish_is_one_message(bus):
    first = bus.send(id="m", payload={"a": 1, "b": 2})
    again = bus.send(id="m", payload={"b": 2, "a": 1}, now=NOW + 5)
    assert (first.duplicate, again.duplicate, again.seq) == (False, True, first.seq)
    assert bus.rows("SELECT count(*) FROM messages") == [(1,)]
    assert bus.send().seq == 2


@pytest.mark.parametrize(
    "changed",
    [{"payload": {"a": 2}}, {"to_agent": "x"}, {"correlation_id": "x"}, {"payload": LARGE}],
)
def test_id_with_other_content_is_a_conflict(bus, changed):
    bus.send(id="m", payload={"a": 1})
    with pytest.raises(MessageIdReused, match="message m has another"):
        bus.send(id="m", **{"payload": {"a": 1}, **changed})


def test_payload_above_4096_bytes_is_in_a_blob_that_other_programs_read(bus):
    bus.send(payload="x" * 4094)  # 4,096 with its quotes
    bus.send(payload=LARGE, to_agent="a")
    (inline, none), (text, ref) = bus.rows("SELECT payload, payload_ref FROM messages")
    assert (len(inline), none, text) == (4096, None, None)
    assert json.loads((bus.paths.blobs / ref).read_bytes()) == LARGE
    assert bus.poll("a")[1].payload == LARGE
    assert bus.send(payload=LARGE).seq == 3  # the same file
    assert len(list(bus.paths.blobs.iterdir())) == 1


def test_unreadable_payloads_are_delivered_with_an_error(bus):
    bus.send(payload=LARGE)
    bus.run(lambda connection: connection.execute("UPDATE messages SET payload_ref = '../bus.db'"))
    add = "INSERT INTO messages (id, ts_ms, from_agent, type, payload) VALUES (?, 1, 'f', 't', ?)"
    for number, text in enumerate(("{no json", "NaN", "[" * 100_000, b"\xff")):
        bus.run(lambda connection, row: connection.execute(add, row), (str(number), text))
    polled = bus.poll("a")
    assert [message.payload_error for message in polled] == ["blob_missing"] + 4 * ["decode_failed"]
    assert polled[1].payload == "{no json"


def test_large_payload_needs_a_blob_and_a_huge_one_is_refused(bus, monkeypatch):
    with pytest.raises(PayloadTooLarge):
        bus.run(messages.publish, NOW, NewMessage(from_agent="a", type="t", payload=LARGE))
    monkeypatch.setattr(messages, "BLOB_BYTES_MAX", 5000)
    with pytest.raises(PayloadTooLarge, match="6,002 bytes"):
        bus.send(payload=LARGE)


@pytest.mark.parametrize(
    "fields",
    [
        {"from_agent": " a"}, {"to_agent": "a\n"}, {"type_": "x" * 300},
        {"in_reply_to": "\ud800"}, {"payload": "\ud800"},
    ],
)  # fmt: skip
def test_bad_fields_are_refused(bus, fields):
    with pytest.raises(Invalid):
        bus.send(**fields)
    assert bus.rows("SELECT count(*) FROM messages") == [(0,)]


def test_correlation_and_reply_chain(bus):
    bus.send(id="1", correlation_id="task")
    bus.send(id="2")
    bus.send(id="3", correlation_id="task", in_reply_to="1")
    bus.send(id="4", in_reply_to="3")
    thread = bus.run(messages.newest, 9, "task")
    assert [message.id for message in thread] == ["1", "3"]
    assert [message.id for message in bus.run(messages.newest, 1, "task")] == ["3"]
    assert [message.id for message in bus.run(messages.reply_chain, "4")] == ["1", "3", "4"]
    bus.run(lambda connection: connection.execute("UPDATE messages SET in_reply_to = '4'"))
    assert [message.id for message in bus.run(messages.reply_chain, "4")] == ["4"]

"""A token limited to channels: every verb of the hub as a table."""

import msgspec
import pytest

from appliance.hub import requests, wire
from appliance.hub.sse import event_stream
from appliance.kernel.auth import principal_of


class ChannelFixture:
    """A channel with a topic and a message."""

    def __init__(self, env, name):
        self.channel = env.channel(name)
        self.topic = env.topic(self.channel, "t")
        self.message = env.post(self.topic)["message"]["id"]


@pytest.fixture
def channels(env):
    return ChannelFixture(env, "ours"), ChannelFixture(env, "theirs")


def limited(channel):
    return principal_of(
        "bot", "bot", [f"hub:read@{channel.channel}", f"hub:post@{channel.channel}"]
    )


OPERATIONS = {
    "channel.create": lambda p: {"name": "new"},
    "topic.create": lambda p: {"channel_id": p.channel, "title": "new"},
    "topic.rename": lambda p: {"topic_id": p.topic, "title": "new"},
    "message.create": lambda p: {"topic_id": p.topic, "sender": "a", "content_raw": "x"},
    "message.edit": lambda p: {"message_id": p.message, "content_raw": "x"},
    "message.delete": lambda p: {"message_id": p.message, "actor": "a"},
    "message.move": lambda p: {"message_id": p.message, "to_topic_id": p.topic, "mode": "one"},
    "attachment.add": lambda p: {"topic_id": p.topic, "kind": "note", "value_json": {}},
}


def test_every_request_is_in_the_table():
    assert set(OPERATIONS) == set(requests.OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_on_a_socket_reaches_no_other_channel(env, channels, operation):
    ours, theirs = channels
    data = OPERATIONS[operation](theirs)
    frame = msgspec.json.encode({"type": "request", "id": 1, "op": operation, "data": data})
    before = env.everything()
    answer = requests.Requests(env.hub, lambda _: None).answer([frame], limited(ours))
    assert b'"status":403' in answer
    assert env.everything() == before


@pytest.mark.parametrize(
    ("channel_names", "topics", "expected"),
    [
        (["ours"], [], 3),
        (["theirs"], [], 0),
        (["ours", "theirs"], [], 3),
        ([], ["their topic"], 0),
        ([], ["our topic"], 2),
        ([], ["our topic", "their topic", "topic_none"], 2),
        (["one of the future"], [], 0),
    ],
)
def test_subscription_is_limited_to_readable_channels(
    env, channels, channel_names, topics, expected
):
    ours, theirs = channels
    ids = {"our topic": ours.topic, "their topic": theirs.topic}
    requested = env.hub.filter_for(channel_names, [ids.get(topic, topic) for topic in topics])
    wanted = env.hub.access.narrow(requested, limited(ours))
    assert wanted.unresolved == frozenset()
    pieces, _ = env.hub.read_log(0, env.hub.feed.head, wanted, framed=False)
    assert pieces.count(b"data: ") == expected


def test_sse_stream_is_limited_to_readable_channels(env, channels):
    ours, theirs = channels
    who = limited(ours)
    env.hub.book.replace([("hash", who)])
    stream = event_stream(env.hub, wire.StreamQuery(after=0), None, who)
    pieces = iter(stream)
    replayed = next(pieces)
    assert replayed.startswith(b"retry: 1000\n\n")
    env.post(theirs.topic, "secret")
    env.post(ours.topic, "open")
    live = next(pieces)
    stream.close()
    assert replayed.count(b"data: ") == 3
    assert (b"open" in live, b"secret" in live) == (True, False)


def test_a_stream_whose_token_ended_while_it_was_made_ends(env, channels):
    stream = event_stream(env.hub, wire.StreamQuery(after=0), None, limited(channels[0]))
    assert list(stream) == []
    stream.close()


def test_token_limited_for_posting_reads_everything(env, channels):
    """On loopback reading is free; a token for posting must not take that away."""
    who = principal_of("bot", "bot", [f"hub:post@{channels[0].channel}"])
    assert len(env.hub.list_channels(wire.ChannelsQuery(), who).channels) == 2


def test_an_attachment_names_no_message_of_another_channel(env, channels):
    """For every principal, the answer is the same as for a message that does not exist."""
    ours, theirs = channels
    before = env.everything()
    for who in (limited(ours), env.alice):
        for message_id in (theirs.message, "msg_none"):
            command = wire.AddAttachment("note", {"a": 1}, source_message_id=message_id)
            with pytest.raises(wire.NoSuchMessage) as refused:
                env.hub.add_attachment(ours.topic, command, who)
            assert refused.value.message == "message not found in the topic's channel"
    assert env.everything() == before


def test_page_cannot_continue_from_another_channel(env, channels):
    ours, theirs = channels
    attached = env.hub.add_attachment(theirs.topic, wire.AddAttachment("note", {"a": 1}), env.alice)
    attachment = msgspec.json.decode(attached.body)["attachment"]["id"]
    who = limited(ours)
    with pytest.raises(wire.UnknownCursor):
        env.hub.list_topics(ours.channel, wire.TopicsQuery(before_id=theirs.topic), who)
    with pytest.raises(wire.UnknownCursor):
        env.hub.list_all_topics(wire.TopicsQuery(before_id=theirs.topic), who)
    query = wire.AttachmentsQuery(before_id=attachment)
    with pytest.raises(wire.UnknownCursor):
        env.hub.list_attachments(ours.topic, query, who)


def test_all_topics_are_those_of_readable_channels(env, channels):
    ours, theirs = channels
    listed = env.hub.list_all_topics(wire.TopicsQuery(), limited(ours)).topics
    assert [topic.channel_id for topic in listed] == [ours.channel]
    everything = env.hub.list_all_topics(wire.TopicsQuery(), env.alice).topics
    assert {topic.channel_id for topic in everything} >= {ours.channel, theirs.channel}

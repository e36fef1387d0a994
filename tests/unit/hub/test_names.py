"""Names, titles and senders that show nothing are refused, whatever way they come."""

import json

import msgspec
import pytest

from appliance.hub import requests, wire
from appliance.kernel.errors import Invalid


@pytest.fixture
def place(house):
    """A channel, a topic, a message."""
    hub, who = house.hub, house.alice
    channel = json.loads(hub.create_channel(wire.CreateChannel("general"), who).body)["channel"]
    topic = wire.CreateTopic(channel["id"], "first")
    topic = json.loads(hub.create_topic(topic, who).body)["topic"]
    message = wire.CreateMessage(topic["id"], "alice", "hello")
    message = json.loads(hub.create_message(message, who).body)["message"]
    return channel["id"], topic["id"], message["id"]


BLANKS = [" ", "\t\n", "\u00a0", "\u200b", "\u2003\u200d\ufeff", "\u3164", "\u2800"]


@pytest.mark.parametrize("blank", BLANKS)
def test_names_titles_and_senders_show_something(house, place, blank):
    """By every verb, alone, in a batch, and as a request on a socket."""
    hub, who = house.hub, house.alice
    channel_id, topic_id, message_id = place
    before = house.everything()
    for field, refused in {
        "name": lambda: hub.create_channel(wire.CreateChannel(blank), who),
        "title": lambda: hub.create_topic(wire.CreateTopic(channel_id, blank), who),
        "new title": lambda: hub.rename_topic(topic_id, wire.RenameTopic(blank), who),
        "sender": lambda: hub.create_message(wire.CreateMessage(topic_id, blank, "x"), who),
        "actor": lambda: hub.patch_message(message_id, wire.DeleteMessage(blank), who),
        "kind": lambda: hub.add_attachment(topic_id, wire.AddAttachment(blank, {}), who),
    }.items():
        with pytest.raises(Invalid) as told:
            refused()
        assert told.value.details == {"field": field.rpartition(" ")[2]}, field
    (result,) = hub.create_messages([wire.BatchMessage(topic_id, blank, "x")], who, [None])
    assert isinstance(result, Invalid)
    for op, data in {
        "channel.create": {"name": blank},
        "topic.create": {"channel_id": channel_id, "title": blank},
        "topic.rename": {"topic_id": topic_id, "title": blank},
        "message.create": {"topic_id": topic_id, "sender": blank, "content_raw": "x"},
        "message.delete": {"message_id": message_id, "actor": blank},
    }.items():
        frame = msgspec.json.encode({"type": "request", "id": 1, "op": op, "data": data})
        answer = requests.Requests(hub, lambda _: None).answer([frame], who)
        assert b'"status":400' in answer, op
    assert house.everything() == before


def test_a_text_may_be_blank(house, place):
    """What is said may be nothing; an edit may empty it too."""
    reply = house.hub.create_message(wire.CreateMessage(place[1], "alice", "\u200b"), house.alice)
    assert reply.status == 201

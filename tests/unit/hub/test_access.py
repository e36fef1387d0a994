"""A token limited to channels: every verb of the hub as a table."""

import msgspec
import pytest

from appliance.hub import requests, wire
from appliance.hub.access import OtherChannel
from appliance.hub.requests import BY_CHANNEL
from appliance.hub.sse import EventStream
from appliance.hub.subscription import Filter
from appliance.kernel.auth import principal_of


class Place:
    """A channel with a topic and a message."""

    def __init__(self, hub, who, name):
        def made(reply, noun):
            return msgspec.json.decode(reply.body)[noun]["id"]

        self.channel = made(hub.create_channel(wire.CreateChannel(name), who), "channel")
        self.topic = made(hub.create_topic(wire.CreateTopic(self.channel, "t"), who), "topic")
        sent = hub.create_message(wire.CreateMessage(self.topic, "a", "hello"), who)
        self.message = made(sent, "message")


@pytest.fixture
def places(house):
    return Place(house.hub, house.alice, "ours"), Place(house.hub, house.alice, "theirs")


def limited(place):
    return principal_of("bot", "bot", [f"hub:read@{place.channel}", f"hub:post@{place.channel}"])


VERBS = {
    "create topic": lambda h, p, w: h.create_topic(wire.CreateTopic(p.channel, "new"), w),
    "rename topic": lambda h, p, w: h.rename_topic(p.topic, wire.RenameTopic("new"), w),
    "create message": lambda h, p, w: h.create_message(wire.CreateMessage(p.topic, "a", "x"), w),
    "edit": lambda h, p, w: h.patch_message(p.message, wire.EditMessage("x"), w),
    "delete": lambda h, p, w: h.patch_message(p.message, wire.DeleteMessage("a"), w),
    "move": lambda h, p, w: h.patch_message(p.message, wire.MoveMessage(p.topic, "all"), w),
    "attach": lambda h, p, w: h.add_attachment(p.topic, wire.AddAttachment("note", {"a": 1}), w),
    "list attachments": lambda h, p, w: h.list_attachments(p.topic, wire.AttachmentsQuery(), w),
    "search channel": lambda h, p, w: h.search(wire.SearchQuery("x", channel_id=p.channel), w),
    "search topic": lambda h, p, w: h.search(wire.SearchQuery("x", topic_id=p.topic), w),
    "list topics": lambda h, p, w: h.list_topics(p.channel, wire.TopicsQuery(), w),
    "page channel": lambda h, p, w: h.page_messages(wire.MessagesQuery(channel_id=p.channel), w),
    "page topic": lambda h, p, w: h.page_messages(wire.MessagesQuery(topic_id=p.topic), w),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_works_in_the_own_channel_and_nowhere_else(house, places, verb):
    ours, theirs = places
    who = limited(ours)
    before = house.everything()
    with pytest.raises(OtherChannel):
        VERBS[verb](house.hub, theirs, who)
    assert house.everything() == before
    VERBS[verb](house.hub, ours, who)


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


def test_every_request_that_looks_at_channels_is_in_the_table():
    assert set(OPERATIONS) == BY_CHANNEL


@pytest.mark.parametrize("operation", sorted(requests.OPERATIONS))
def test_a_request_on_a_socket_reaches_no_other_channel(house, places, operation):
    """Also one that nobody has written down above: it is closed to who is limited."""
    ours, theirs = places
    data = OPERATIONS.get(operation, lambda _: {})(theirs)
    frame = msgspec.json.encode({"type": "request", "id": 1, "op": operation, "data": data})
    before = house.everything()
    answer = requests.Requests(house.hub, lambda _: None).answer([frame], limited(ours))
    assert b'"status":403' in answer
    assert house.everything() == before


def test_channels_are_made_by_nobody_who_is_limited(house, places):
    with pytest.raises(OtherChannel):
        house.hub.create_channel(wire.CreateChannel("new"), limited(places[0]))


def test_what_does_not_exist_is_answered_as_it_is_for_everybody(house, places):
    who = limited(places[0])
    with pytest.raises(wire.NoSuchTopic):
        house.hub.create_message(wire.CreateMessage("topic_none", "a", "x"), who)
    with pytest.raises(wire.NoSuchMessage):
        house.hub.patch_message("msg_none", wire.EditMessage("x"), who)


def test_a_batch_refuses_only_what_goes_elsewhere(house, places):
    commands = [wire.BatchMessage(place.topic, "a", "x") for place in (*places, places[0])]
    results = house.hub.create_messages(commands, limited(places[0]), [None] * 3)
    assert [type(each).__name__ for each in results] == ["Reply", "OtherChannel", "Reply"]


def test_lists_and_the_log_show_the_own_channel_only(house, places):
    ours, _ = places
    who = limited(ours)
    listed = house.hub.list_channels(wire.ChannelsQuery(), who).channels
    assert [each.id for each in listed] == [ours.channel]
    for query in (wire.EventsQuery(), wire.EventsQuery(tail=100)):
        log = msgspec.json.decode(house.hub.list_events(query, who), type=wire.EventList)
        assert [event.scope.channel_id for event in log.events] == [ours.channel] * 3
    everything = msgspec.json.decode(house.hub.list_events(wire.EventsQuery(), house.alice))[
        "events"
    ]
    assert len(everything) == 6


def test_a_search_finds_in_the_own_channel_only(house, places):
    found = house.hub.search(wire.SearchQuery("hello"), limited(places[0])).messages
    assert [each.id for each in found] == [places[0].message]
    assert len(house.hub.search(wire.SearchQuery("hello"), house.alice).messages) == 2


@pytest.mark.parametrize(
    ("channels", "topics", "heard"),
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
def test_a_subscription_is_cut_to_what_may_be_heard(house, places, channels, topics, heard):
    ours, theirs = places
    ids = {"our topic": ours.topic, "their topic": theirs.topic}
    asked = house.hub.filter_for(channels, [ids.get(topic, topic) for topic in topics])
    wanted = house.hub.access.narrow(asked, limited(ours))
    assert wanted.unresolved == frozenset()
    pieces, _ = house.hub.read_log(0, house.hub.feed.head, wanted, framed=False)
    assert pieces.count(b"data: ") == heard


def test_everything_means_everything_that_may_be_heard(house, places):
    ours, _ = places
    assert house.hub.access.all_events(house.alice) is None
    assert house.hub.access.all_events(limited(ours)).channels == {ours.channel}
    unlimited = Filter(frozenset({"a"}))
    assert house.hub.access.narrow(unlimited, house.alice) is unlimited


def test_a_stream_of_server_sent_events_is_cut_too(house, places):
    ours, theirs = places
    who = limited(ours)
    house.hub.book.replace([("hash", who)])
    stream = EventStream(house.hub, wire.StreamQuery(after=0), None, who)
    pieces = iter(stream)
    assert next(pieces) == b"retry: 1000\n\n"
    replayed = next(pieces)
    house.hub.create_message(wire.CreateMessage(theirs.topic, "a", "secret"), house.alice)
    house.hub.create_message(wire.CreateMessage(ours.topic, "a", "open"), house.alice)
    live = next(pieces)
    stream.close()
    assert replayed.count(b"data: ") == 3
    assert (b"open" in live, b"secret" in live) == (True, False)


def test_a_stream_whose_token_ended_while_it_was_made_ends(house, places):
    stream = EventStream(house.hub, wire.StreamQuery(after=0), None, limited(places[0]))
    assert list(stream) == [b"retry: 1000\n\n"]
    stream.close()


def test_who_may_only_post_somewhere_reads_like_anybody(house, places):
    """On loopback reading is free; a token for posting must not take that away."""
    who = principal_of("bot", "bot", [f"hub:post@{places[0].channel}"])
    assert len(house.hub.list_channels(wire.ChannelsQuery(), who).channels) == 2


def test_an_attachment_names_no_message_of_another_channel(house, places):
    """Whoever asks: the answer is the same as for a message that does not exist."""
    ours, theirs = places
    before = house.everything()
    for who in (limited(ours), house.alice):
        for message_id in (theirs.message, "msg_none"):
            command = wire.AddAttachment("note", {"a": 1}, source_message_id=message_id)
            with pytest.raises(wire.NoSuchMessage) as refused:
                house.hub.add_attachment(ours.topic, command, who)
            assert refused.value.message == "message not found in the topic's channel"
    assert house.everything() == before


def test_an_attachment_names_a_message_that_moved_within_its_channel(house, places):
    ours, _ = places
    made = house.hub.create_topic(wire.CreateTopic(ours.channel, "elsewhere"), house.alice)
    elsewhere = msgspec.json.decode(made.body)["topic"]["id"]
    house.hub.patch_message(ours.message, wire.MoveMessage(elsewhere, "one"), house.alice)
    command = wire.AddAttachment("note", {"a": 1}, source_message_id=ours.message)
    assert house.hub.add_attachment(ours.topic, command, limited(ours)).status == 201


def test_a_page_continues_from_nothing_of_another_place(house, places):
    ours, theirs = places
    attached = house.hub.add_attachment(
        theirs.topic, wire.AddAttachment("note", {"a": 1}), house.alice
    )
    attachment = msgspec.json.decode(attached.body)["attachment"]["id"]
    who = limited(ours)
    with pytest.raises(wire.NoSuchTopic):
        house.hub.list_topics(ours.channel, wire.TopicsQuery(before_id=theirs.topic), who)
    query = wire.AttachmentsQuery(before_id=attachment)
    with pytest.raises(wire.NoSuchAttachment):
        house.hub.list_attachments(ours.topic, query, who)

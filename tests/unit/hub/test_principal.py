"""Who created what: recorded with every change, and tokens that may use certain names only."""

import json

import msgspec
import pytest

from appliance.hub import requests, wire
from appliance.kernel.auth import ADMIN, ANONYMOUS, OWNER, Principal, principal_of

CI = principal_of("tok_1", "ci", ["hub:post", "hub:read"], senders=["builder", "tester"])


@pytest.fixture
def place(house):
    """A channel, two topics, a message of alice's."""
    hub, who = house.hub, house.alice
    channel = json.loads(hub.create_channel(wire.CreateChannel("general"), who).body)["channel"]
    topics = [
        json.loads(hub.create_topic(wire.CreateTopic(channel["id"], title), who).body)["topic"]
        for title in ("first", "second")
    ]
    message = wire.CreateMessage(topics[0]["id"], "alice", "hello")
    message = json.loads(hub.create_message(message, who).body)["message"]
    return channel["id"], topics[0]["id"], topics[1]["id"], message["id"]


def log(house):
    """(name, principal) of every event."""
    rows = house.rows("SELECT name, data_json FROM events ORDER BY event_id")
    return [(name, json.loads(data)["principal"]) for name, data in rows]


@pytest.mark.parametrize(
    ("principal", "label"),
    [
        (CI, "ci"),
        (Principal("server", "the workspace's token", frozenset({ADMIN})), "server"),
        (OWNER, "owner"),
        (ANONYMOUS, None),
    ],
)
def test_what_is_recorded_of_a_principal(principal, label):
    assert principal.label == label


def test_every_change_and_its_event_carry_who_did_it(house, place):
    hub, bob = house.hub, house.bob
    channel, topic, other, message = place
    hub.create_channel(wire.CreateChannel("new"), bob)
    hub.create_topic(wire.CreateTopic(channel, "third"), bob)
    hub.rename_topic(topic, wire.RenameTopic("renamed"), bob)
    hub.add_attachment(topic, wire.AddAttachment("note", {"a": 1}), bob)
    hub.create_message(wire.CreateMessage(topic, "anybody", "x"), bob)
    hub.create_messages([wire.BatchMessage(topic, "anybody", "y")], bob, ["k"])
    edited = hub.patch_message(message, wire.EditMessage("changed"), bob)
    hub.patch_message(message, wire.MoveMessage(other, "one"), bob)
    hub.patch_message(message, wire.DeleteMessage("anybody"), bob)
    assert [who for _, who in log(house)] == ["alice"] * 4 + ["bob"] * 9
    assert json.loads(edited.body)["message"]["principal"] == "alice", "who created it stays"


def test_messages_carry_it_wherever_they_are_read(house, place):
    hub, topic = house.hub, place[1]
    made = hub.create_message(wire.CreateMessage(topic, "anybody", "searchable"), house.bob)
    message = json.loads(made.body)["message"]
    assert message["principal"] == "bob"
    page = hub.page_messages(wire.MessagesQuery(topic_id=topic), house.alice)
    assert [one.principal for one in page.messages] == ["bob", "alice"]
    (found,) = hub.search(wire.SearchQuery("searchable"), house.alice).messages
    assert found.principal == "bob"
    (event,) = json.loads(hub.list_events(wire.EventsQuery(tail=1), house.alice))["events"]
    assert event["data_json"] == {"message": message, "principal": "bob"}
    assert house.told[-1].data == json.dumps(event["data_json"], separators=(",", ":"))


def test_a_message_of_another_program_has_none(house, place):
    house.store.write(_as_another_program, place[0], place[1])
    page = house.hub.page_messages(wire.MessagesQuery(topic_id=place[1]), house.alice)
    assert [one.principal for one in page.messages] == [None, "alice"]
    edited = house.hub.patch_message(page.messages[0].id, wire.EditMessage("x"), house.bob)
    assert json.loads(edited.body)["message"]["principal"] is None


def _as_another_program(tx, channel, topic):
    tx.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
        " VALUES (?, ?, ?, 'x', 'x', ?)",
        (tx.new_id("msg_"), topic, channel, tx.now),
    )


def test_a_replay_under_a_key_tells_the_first_principal(house, place):
    command = wire.CreateMessage(place[1], "anybody", "once")
    first = house.hub.create_message(command, house.bob, "k")
    again = house.hub.create_message(command, house.bob, "k")
    assert (again.body, again.replayed) == (first.body, True)
    assert len(house.rows("SELECT 1 FROM x_message_principals WHERE principal = 'bob'")) == 1


def test_a_limited_token_posts_edits_and_deletes_under_its_names_only(house, place):
    hub, topic, other_message = house.hub, place[1], place[3]
    made = hub.create_message(wire.CreateMessage(topic, "builder", "x"), CI)
    own = json.loads(made.body)["message"]["id"]
    before = house.everything()
    for refused in (
        lambda: hub.create_message(wire.CreateMessage(topic, "alice", "x"), CI),
        lambda: hub.create_message(wire.CreateMessage(topic, "Builder", "x"), CI, "key"),
        lambda: hub.patch_message(own, wire.DeleteMessage("alice"), CI),
        lambda: hub.patch_message(other_message, wire.EditMessage("put in alice's mouth"), CI),
    ):
        with pytest.raises(wire.SenderNotAllowed) as told:
            refused()
        assert told.value.details["allowed"] == ["builder", "tester"]
        assert told.value.hint == "sender names of this token: builder, tester"
    assert house.everything() == before
    assert hub.patch_message(own, wire.EditMessage("y"), CI).status == 200
    assert hub.patch_message(own, wire.DeleteMessage("tester"), CI).status == 200


def test_in_a_batch_and_on_a_socket_only_the_wrong_name_is_refused(house, place):
    topic = place[1]
    items = [wire.BatchMessage(topic, name, "x") for name in ("builder", "alice", "tester")]
    results = house.hub.create_messages(items, CI, [None] * 3)
    assert [type(one).__name__ for one in results] == ["Reply", "SenderNotAllowed", "Reply"]
    frames = [
        msgspec.json.encode(
            {"type": "request", "id": name, "op": "message.create",
             "data": {"topic_id": topic, "sender": name, "content_raw": "x"}}
        )
        for name in ("alice", "builder")
    ]  # fmt: skip
    answer = requests.Requests(house.hub, lambda _: None).answer(frames, CI)
    assert answer.count(b'"code":"SENDER_NOT_ALLOWED"') == 1
    assert answer.count(b'"status":201') == 1

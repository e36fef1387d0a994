"""The principal is recorded with every change; tokens that may use only certain names."""

import json

import pytest

from appliance.hub import wire
from appliance.kernel.auth import SenderNotAllowed, principal_of

CI = principal_of("tok_1", "ci", ["hub:post", "hub:read"], senders=["builder", "tester"])


@pytest.fixture
def ids(env, ids):
    """A channel, two topics, a message of alice's."""
    channel_id, topic_id, message_id = ids
    return channel_id, topic_id, env.topic(channel_id, "second"), message_id


def test_messages_carry_their_principal(env, ids):
    hub, topic = env.hub, ids[1]
    made = hub.create_message(wire.CreateMessage(topic, "anybody", "searchable"), env.bob)
    message = json.loads(made.body)["message"]
    assert message["principal"] == "bob"
    page = hub.page_messages(wire.MessagesQuery(topic_id=topic), env.alice)
    assert [each.principal for each in page.messages] == ["bob", "alice"]
    (hit,) = hub.search(wire.SearchQuery("searchable"), env.alice).messages
    assert hit.principal == "bob"
    (event,) = json.loads(hub.list_events(wire.EventsQuery(tail=1), env.alice))["events"]
    assert event["data_json"] == {"message": message, "principal": "bob"}
    assert env.published[-1].data == json.dumps(event["data_json"], separators=(",", ":"))


def test_a_limited_token_posts_edits_and_deletes_under_its_names_only(env, ids):
    hub, topic, other_message = env.hub, ids[1], ids[3]
    made = hub.create_message(wire.CreateMessage(topic, "builder", "x"), CI)
    own = json.loads(made.body)["message"]["id"]
    before = env.everything()
    for refused in (
        lambda: hub.create_message(wire.CreateMessage(topic, "alice", "x"), CI),
        lambda: hub.create_message(wire.CreateMessage(topic, "Builder", "x"), CI, "key"),
        lambda: hub.patch_message(own, wire.DeleteMessage("alice"), CI),
        lambda: hub.patch_message(other_message, wire.EditMessage("put in alice's mouth"), CI),
    ):
        with pytest.raises(SenderNotAllowed) as error:
            refused()
        assert error.value.details["allowed"] == ["builder", "tester"]
        assert error.value.hint == "this token's sender names: builder, tester"
    assert env.everything() == before
    assert hub.patch_message(own, wire.EditMessage("y"), CI).status == 200
    assert hub.patch_message(own, wire.DeleteMessage("tester"), CI).status == 200

"""Names, titles and senders need a visible character; content may be blank."""

import json

import pytest

from appliance.hub import text, wire
from appliance.kernel.errors import Invalid, PayloadTooLarge

BLANKS = [
    " ", "\t\n", "\u00a0", "\u200b", "\u2003\u200d\ufeff", "\u3164", "\u2800", "\u0301\u0308",
    "\x7f", "\u2028", "\u00ad", "\u202e", "\U000e0041", "\u2065", "\u115f\u1160", "\ufe0f",
]  # fmt: skip

ALIKE = [
    ("caf\u00e9", "cafe\u0301"),
    ("general", "gen\u200beral"),
    ("general", "general "),
    ("general", "\ufeffgeneral\u2060"),
    ("ship it", "ship\u00a0 it"),
    ("ab", "a\u200db"),
]
DIFFERENT = [
    ("\u2764", "\u2764\ufe0f"),  # text and emoji
    ("\U0001f469\U0001f467", "\U0001f469\u200d\U0001f467"),  # two people, a family
    (
        "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    ),
    ("general", "General"),
]


@pytest.mark.parametrize(("name", "other"), ALIKE)
def test_names_that_look_alike_are_one_name(env, name, other):
    hub, who = env.hub, env.alice
    channel = json.loads(hub.create_channel(wire.CreateChannel(other), who).body)["channel"]
    assert channel["name"] == name
    with pytest.raises(wire.NameTaken):
        hub.create_channel(wire.CreateChannel(name), who)
    topic = json.loads(hub.create_topic(wire.CreateTopic(other, other), who).body)["topic"]
    assert (topic["channel_id"], topic["title"]) == (channel["id"], name)
    with pytest.raises(wire.NameTaken):
        hub.create_topic(wire.CreateTopic(name, name), who)
    sent = hub.create_message(wire.CreateMessage(f"{name}/{other}", "ann", "x"), who)
    assert json.loads(sent.body)["message"]["topic_id"] == topic["id"]


@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_names_that_look_different_stay_two_names(name, other):
    assert text.plain_name(name) == name
    assert text.plain_name(other) == other


@pytest.mark.parametrize("blank", BLANKS)
def test_names_need_a_visible_character(env, ids, blank):
    """By every verb, alone and in a batch."""
    hub, who = env.hub, env.alice
    channel_id, topic_id, message_id = ids
    before = env.everything()
    for field, refused in {
        "name": lambda: hub.create_channel(wire.CreateChannel(blank), who),
        "title": lambda: hub.create_topic(wire.CreateTopic(channel_id, blank), who),
        "new title": lambda: hub.rename_topic(topic_id, wire.RenameTopic(blank), who),
        "sender": lambda: hub.create_message(wire.CreateMessage(topic_id, blank, "x"), who),
        "actor": lambda: hub.patch_message(message_id, wire.DeleteMessage(blank), who),
        "kind": lambda: hub.add_attachment(topic_id, wire.AddAttachment(blank, {}), who),
    }.items():
        with pytest.raises(Invalid) as answer:
            refused()
        assert answer.value.details == {"field": field.rpartition(" ")[2]}, field
    (result,) = hub.create_messages([wire.BatchMessage(topic_id, blank, "x")], who, [None])
    assert isinstance(result, Invalid)
    assert env.everything() == before


@pytest.mark.parametrize("character", ["a", "é", "語", "🙂"])
def test_content_is_limited_in_bytes(character):
    longest = character * (wire.CONTENT_BYTES_MAX // len(character.encode()))
    text.check_message("ann", longest)
    with pytest.raises(PayloadTooLarge) as refused:
        text.check_message("ann", longest + character)
    assert refused.value.details["limit"] == wire.CONTENT_BYTES_MAX

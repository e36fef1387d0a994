"""What happens to an entry, verb by verb."""

import json

import pytest

from appliance.hub.addressing import FOLLOWERS_MAX
from appliance.hub.entries import wire
from appliance.hub.entries.writes import REMINDERS_MAX
from appliance.hub.recipients import TooManyInboxes
from appliance.hub.wire import CreateMessage, NoSuchTopic
from appliance.kernel.auth import ANONYMOUS, Principal, SenderNotAllowed
from appliance.kernel.errors import Invalid
from tests.unit.hub.entries.conftest import SCOPES

HOUR = 3600


def test_message_waits_in_inbox_of_each_recipient(env):
    env.send("first", to=["ada", "bob"])
    env.send("second", to=["ada"])
    assert env.texts("ada") == ["first", "second"]
    assert env.texts("bob") == ["first"]
    assert env.texts("cy") == []


def test_listing_acknowledges_nothing_and_is_in_the_receipt(env):
    sent = env.send(to=["ada"])
    (before,) = sent["receipts"]
    assert (before["state"], before["listed_at"], before["last_seen"]) == ("stored", None, None)
    assert before["waking"] == "unknown"
    env.clock.tick(5)
    assert env.texts("ada") == env.texts("ada") == ["look"]
    (after,) = env.receipts(sent)
    assert (after.state, after.settled_at) == ("listed", None)
    assert after.listed_at == after.last_seen > before["stored_at"]


def test_peek_and_callers_that_may_not_post_leave_no_trace(env):
    sent = env.send(to=["ada"])
    env.list("ada", peek=True)
    env.list("ada", principal=ANONYMOUS)
    env.list("ada", principal=Principal("tok_r", "reader", frozenset({"hub:read"})))
    (receipt,) = env.receipts(sent)
    assert (receipt.state, receipt.last_seen) == ("stored", None)


def test_mention_reaches_known_names_and_reports_others(env):
    env.list("ada")
    sent = env.send("@ada @bob @boss look")
    assert [each["name"] for each in sent["receipts"]] == ["ada"]
    assert sent["unknown"] == ["bob", "boss"]
    assert env.texts("bob") == []


def test_name_in_to_that_nobody_used_waits_and_is_reported(env):
    sent = env.send(to=["ada"])
    assert sent["unknown"] == ["ada"]
    env.list("ada")
    assert "unknown" not in env.send(to=["ada"])


def test_token_makes_its_name_and_its_senders_known(env):
    ada = Principal("t1", "ada", SCOPES)
    other = Principal("t2", "x", SCOPES, senders=frozenset({"bob"}))
    env.hub.book.replace([("h1", ada), ("h2", other)])
    assert env.send("@ada @bob @x")["unknown"] == ["x"]


def test_plain_message_has_a_plain_reply_and_event(env):
    assert set(env.send()) == {"message", "event_id"}
    (data,) = env.rows("SELECT data_json FROM events WHERE name = 'message.created'")[0]
    assert set(json.loads(data)) == {"message", "principal"}


def test_event_of_an_addressed_message_names_its_entries(env):
    env.send(to=["ada"])
    (data,) = env.rows("SELECT data_json FROM events WHERE name = 'message.created'")[0]
    assert json.loads(data)["entries"] == [{"id": 1, "name": "ada", "reason": "to"}]


def test_followers_get_messages_of_others(env):
    assert env.follow("ada")["changed"] is True
    assert env.follow("ada")["changed"] is False
    env.follow("boss")
    env.send("one")
    assert env.texts("ada") == ["one"]
    assert env.texts("boss") == []
    env.entries.unfollow(env.topic_id, wire.FollowTopic("ada"), env.agent)
    env.send("two")
    assert env.texts("ada") == ["one"]
    assert env.entries.follows(wire.FollowsQuery("ada"), env.agent).follows == []


def test_follower_who_is_addressed_has_one_entry(env):
    env.follow("ada")
    env.send("@ada look", to=["ada"])
    assert [entry.reason for entry in env.list("ada").entries] == ["to"]


def test_follows_are_limited_and_need_a_topic(env):
    with pytest.raises(NoSuchTopic):
        env.follow("ada", "topic_none")
    for number in range(FOLLOWERS_MAX):
        env.follow(f"n{number}")
    with pytest.raises(wire.TooManyFollows):
        env.follow("one more")


def test_acknowledged_entry_is_gone_and_a_repeat_says_so(env):
    sent = env.send(to=["ada"])
    assert env.ack("ada", 1) == {"ids": [1], "already": []}
    assert env.ack("ada", 1) == {"ids": [], "already": [1]}
    assert env.texts("ada") == []
    assert env.texts("ada", settled=True) == ["look"]
    (receipt,) = env.receipts(sent)
    assert (receipt.state, receipt.last_acknowledged.entry_id) == ("acknowledged", 1)
    assert env.event_names().count("entry.acknowledged") == 1


@pytest.mark.parametrize("ids", [(99,), (1, 99), (2,), (1, 2)])
def test_acknowledging_is_all_or_nothing(env, ids):
    env.send(to=["ada"])
    env.send(to=["bob"])
    with pytest.raises(wire.NoSuchEntry):
        env.ack("ada", *ids)
    assert env.texts("ada") == ["look"]


@pytest.mark.parametrize(
    "command", [{}, {"first": 1}, {"last": 2}, {"ids": [1], "first": 1, "last": 2}]
)
def test_range_without_both_ends_or_with_ids_is_refused(env, command):
    env.send(to=["ada"])
    with pytest.raises(Invalid):
        env.entries.acknowledge(wire.Acknowledge(name="ada", **command), env.agent)


def test_range_covers_only_what_was_listed(env):
    for number in range(4):
        env.send(str(number), to=["ada"])
    env.list("ada", limit=3)
    with pytest.raises(wire.NotListed) as refused:
        env.ack("ada", first=1, last=4)
    assert refused.value.details == {"ids": [4]}
    assert env.ack("ada", first=1, last=3)["ids"] == [1, 2, 3]
    assert env.texts("ada") == ["3"]


def test_range_that_ends_before_it_begins_is_refused(env):
    for number in range(2):
        env.send(str(number), to=["ada"])
    with pytest.raises(Invalid):
        env.ack("ada", first=2, last=1)


def test_declined_entry_shows_its_reason_and_stays_declined(env):
    sent = env.send(to=["ada"])
    assert env.decline("ada", 1, "not mine") == {"ids": [1], "already": []}
    assert env.decline("ada", 1, "other") == {"ids": [], "already": [1]}
    with pytest.raises(wire.EntrySettled):
        env.ack("ada", 1)
    (receipt,) = env.receipts(sent)
    assert (receipt.state, receipt.declined_because) == ("declined", "not mine")


def test_receipt_counts_what_waits_before(env):
    for _ in range(3):
        env.send(to=["ada"])
    last = env.send(to=["ada"])
    assert last["receipts"][0]["before"] == 3
    env.ack("ada", 2)
    (receipt,) = env.receipts(last)
    assert (receipt.before, receipt.last_acknowledged.entry_id) == (2, 2)


def test_token_uses_inboxes_of_its_senders_only(env):
    env.send(to=["ada", "bob"])
    ada = Principal("tok_ada", "build", SCOPES, senders=frozenset({"ada"}))
    assert [entry.name for entry in env.list(None, principal=ada).entries] == ["ada"]
    with pytest.raises(SenderNotAllowed):
        env.list("bob", principal=ada)
    with pytest.raises(SenderNotAllowed):
        env.ack("bob", 2, principal=ada)


def test_caller_without_a_name_has_to_give_one(env):
    with pytest.raises(wire.NameMissing):
        env.list(None, principal=ANONYMOUS)


def test_limited_token_sees_entries_of_its_channels(env):
    other = env.topic(env.channel("other"), "t")
    env.send("here", to=["ada"])
    env.send("there", to=["ada"], topic_id=other)
    (channel_id,) = env.rows("SELECT id FROM channels WHERE name = 'other'")[0]
    channels = {scope: frozenset({channel_id}) for scope in SCOPES}
    limited = Principal("tok_l", "ada", SCOPES, channels)
    page = env.list("ada", principal=limited)
    assert ([entry.message.content_raw for entry in page.entries], page.open) == (["there"], 1)
    with pytest.raises(wire.NoSuchEntry):
        env.ack("ada", 1, principal=limited)


@pytest.mark.parametrize(
    "command", [{"ack_by_seconds": 5}, {"to": ["ada"], "on_overdue": "remind"}, {"to": [" "]}]
)
def test_deadline_without_recipients_or_wish_without_deadline_is_refused(env, command):
    with pytest.raises(Invalid):
        env.send("@ada", **command)
    assert env.rows("SELECT count(*) FROM messages") == [(0,)]


# -- deadlines -----------------------------------------------------------------------------


def test_deadline_that_passes_marks_the_entry_once(env):
    sent = env.send(to=["ada"], ack_by_seconds=HOUR)
    env.run_loop()
    assert env.entries.overdue(10) == []
    env.clock.pass_seconds(HOUR)
    assert env.run_loop() == {"handled": 1}
    assert env.run_loop() == {"handled": 0}
    (receipt,) = env.receipts(sent)
    assert receipt.overdue_at is not None
    assert receipt.state == "stored"
    assert [entry.id for entry in env.entries.overdue(10)] == [1]
    env.ack("ada", 1)
    assert env.entries.overdue(10) == []
    assert env.event_names().count("entry.overdue") == 1


def test_acknowledged_entry_is_never_overdue(env):
    env.send(to=["ada"], ack_by_seconds=HOUR)
    env.ack("ada", 1)
    env.clock.pass_seconds(2 * HOUR)
    assert env.run_loop() == {"handled": 0}


def test_reminder_moves_the_entry_behind_later_ones_a_few_times(env):
    env.send("old", to=["ada"], ack_by_seconds=HOUR, on_overdue="remind")
    env.send("new", to=["ada"])
    page = env.list("ada")
    assert env.list("ada", after=page.next).entries == []
    for number in range(REMINDERS_MAX + 2):
        env.clock.pass_seconds(HOUR)
        env.run_loop()
        assert env.texts("ada") == ["new", "old"]
        again = env.list("ada", after=page.next).entries
        assert [entry.message.content_raw for entry in again] == ["old"]
        assert again[0].reminders == min(number + 1, REMINDERS_MAX)
    assert env.event_names().count("entry.overdue") == REMINDERS_MAX + 1


def test_overdue_entry_is_reassigned_with_the_same_deadline(env):
    sent = env.send(to=["ada"], ack_by_seconds=HOUR, on_overdue="reassign:bob")
    env.clock.pass_seconds(HOUR)
    env.run_loop()
    assert env.texts("ada") == []
    (entry,) = env.list("bob").entries
    assert (entry.reason, entry.ack_by is not None) == ("reassigned", True)
    ada, bob = env.receipts(sent)
    assert (ada.state, ada.declined_because) == ("declined", "overdue, reassigned to bob")
    assert bob.name == "bob"
    env.clock.pass_seconds(HOUR)
    env.run_loop()
    assert [each.name for each in env.entries.overdue(10)] == ["bob"]


def test_entry_is_not_reassigned_twice_to_a_recipient(env):
    env.send(to=["ada", "bob"], ack_by_seconds=HOUR, on_overdue="reassign:bob")
    env.clock.pass_seconds(HOUR)
    env.run_loop()
    assert len(env.list("bob", settled=True).entries) == 1


def test_entry_for_its_own_heir_stays_open_and_overdue(env):
    env.send(to=["ada"], ack_by_seconds=HOUR, on_overdue="reassign:ada")
    env.clock.pass_seconds(HOUR)
    env.run_loop()
    assert [entry.name for entry in env.entries.overdue(10)] == ["ada"]


def test_entry_that_the_heir_declined_stays_with_its_name(env):
    env.send(to=["ada", "bob"], ack_by_seconds=HOUR, on_overdue="reassign:bob")
    env.entries.decline(wire.Decline(2, "busy", "bob"), env.agent)
    env.clock.pass_seconds(HOUR)
    env.run_loop()
    assert [entry.name for entry in env.entries.overdue(10)] == ["ada"]


def test_wall_clock_that_is_set_moves_no_deadline(env):
    env.send(to=["ada"], ack_by_seconds=HOUR)
    env.clock.ms += 2 * HOUR * 1000
    assert env.run_loop() == {"handled": 0}
    env.clock.ms -= 5 * HOUR * 1000
    env.clock.pass_seconds(HOUR)
    assert env.run_loop() == {"handled": 1}


def test_repeated_post_adds_no_second_entry(env):
    command = CreateMessage(env.topic_id, "boss", "x", ["ada"])
    replies = [env.hub.create_message(command, env.agent, "key") for _ in range(2)]
    assert replies[0].body == replies[1].body
    assert len(env.list("ada").entries) == 1


def test_names_above_the_limit_open_no_inbox(env, monkeypatch):
    monkeypatch.setattr("appliance.hub.addressing.INBOXES_MAX", 2)
    env.list("ada")
    env.send(to=["bob"])
    for open_one in (lambda: env.list("cy"), lambda: env.send(to=["cy"])):
        with pytest.raises(TooManyInboxes):
            open_one()
    assert env.texts("bob") == ["look"]

"""Topic states, handoff notes, pins, and what a catch-up shows to whom."""

import json

import msgspec
import pytest

from appliance.hub import wire as hub_wire
from appliance.hub.access import OtherChannel
from appliance.hub.catchup import queries, wire
from appliance.hub.catchup.service import CatchUps, OwnClaim
from appliance.hub.entries.wire import NameMissing
from appliance.kernel.auth import Principal, SenderNotAllowed, principal_of
from appliance.kernel.errors import CursorBeyondEnd, Invalid, PayloadTooLarge, Unavailable

SCOPES = frozenset({"hub:read", "hub:post"})


def test_topic_is_resolved_and_reopened_once_each(env):
    done = env.change("resolve", "the cache has grown")
    assert (done["changed"], done["state"]["resolved"]) == (True, True)
    again = env.change("resolve", "another note")
    assert (again["changed"], again["event_id"]) == (False, None)
    assert again["state"]["note"] == "the cache has grown"
    env.change("reopen", "it fails again")
    state = env.catch_ups.topic_state("general/builds", env.agent).state
    assert (state.resolved, state.note, state.changed_by) == (False, "it fails again", "ada")
    assert env.event_names()[-2:] == ["topic.resolved", "topic.reopened"]


def test_handoff_note_is_replaced_only_by_readers_of_the_current_one(env):
    first = env.change("write_handoff", "one")["state"]["handoff"]
    assert (first["version"], first["up_to_event"]) == (1, 2)
    for version in (0, 2):
        with pytest.raises(hub_wire.VersionConflict) as refused:
            env.change("write_handoff", "unseen", expected_version=version)
        assert refused.value.extra == {"current_version": 1}
    env.send(), env.send()
    assert env.catch_ups.topic_state(env.topic_id, env.agent).messages_since == 2
    env.change("write_handoff", "two", expected_version=1, up_to_event=4)
    shown = env.catch_ups.topic_state(env.topic_id, env.agent)
    assert (shown.state.handoff.note, shown.state.handoff.version) == ("two", 2)
    assert shown.messages_since == 1, "the note covers the first one"
    with pytest.raises(Invalid, match="after the newest event"):
        env.change("write_handoff", "three", expected_version=2, up_to_event=99)


def test_state_changes_keep_the_handoff_note(env):
    env.change("resolve", "done")
    env.change("write_handoff", "one")
    env.change("reopen", "again")
    state = env.catch_ups.topic_state(env.topic_id, env.agent).state
    assert (state.resolved, state.handoff.note) == (False, "one")


def test_repeated_request_with_one_key_changes_once(env):
    first = env.change("write_handoff", "one", key="k")
    assert env.change("write_handoff", "one", key="k") == first
    assert env.event_names().count("topic.handoff") == 1


def test_failed_commit_leaves_neither_row_nor_event(env):
    before = env.everything()
    env.runner.failure = OSError("disk")
    with pytest.raises(Exception):  # noqa: B017
        env.change("resolve")
    env.runner.failure = None
    env.reopen()
    assert env.everything() == before
    assert env.rows("SELECT * FROM x_topic_states") == []


@pytest.mark.parametrize(
    ("note", "error"), [(" ", Invalid), ("é" * 4001, PayloadTooLarge), ("a\0b", Invalid)]
)
def test_unusable_notes_are_refused(env, note, error):
    with pytest.raises(error):
        env.change("resolve", note)


def test_unknown_topics_and_messages_are_refused(env):
    with pytest.raises(hub_wire.NoSuchTopic):
        env.change("resolve", topic_id="topic_none")
    with pytest.raises(hub_wire.NoSuchTopic):
        env.catch_ups.topic_state("topic_none", env.agent)
    with pytest.raises(hub_wire.NoSuchMessage):
        env.pin("msg_none")


def test_pins_are_listed_until_unpinned_or_deleted(env):
    first, second = env.send("one"), env.send("two")
    assert env.pin(first)["changed"]
    assert not env.pin(first)["changed"]
    env.pin(second)
    listed = env.catch_ups.pins(wire.PinsQuery(), env.agent).pins
    assert [pinned.message.id for pinned in listed] == [second, first]
    assert env.pin(first, "unpin")["changed"]
    assert not env.pin(first, "unpin")["changed"]
    env.hub.patch_message(second, hub_wire.DeleteMessage("boss"), env.admin)
    assert env.catch_ups.pins(wire.PinsQuery("general"), env.agent).pins == []
    assert env.part("pins").items == []
    with pytest.raises(wire.PinnedDeleted):
        env.pin(second)
    names = [name for name in env.event_names() if name.endswith("pinned")]
    assert names == ["message.pinned", "message.pinned", "message.unpinned"]


def test_channel_has_a_limit_of_pins_which_deleted_messages_leave(env, monkeypatch):
    monkeypatch.setattr(wire, "PINS_MAX", 2)
    messages = [env.send() for _ in range(3)]
    env.pin(messages[0]), env.pin(messages[1])
    with pytest.raises(wire.TooManyPins):
        env.pin(messages[2])
    env.hub.patch_message(messages[0], hub_wire.DeleteMessage("boss"), env.admin)
    assert env.pin(messages[2])["changed"]
    elsewhere = env.topic(env.channel("other"), "t")
    assert env.pin(env.send(topic_id=elsewhere))["changed"]


# -- catching up ---------------------------------------------------------------------------------


def test_parts_are_in_the_order_of_urgency(env):
    env.ask("Deploy now?", choices=["yes", "no"], deadline_seconds=600)
    env.claims.claims = [OwnClaim("task-7", 100, 20), OwnClaim("task-8", 5, -3)]
    env.send("first", to=["ada"]), env.send("urgent", to=["ada"], ack_by_seconds=60)
    env.pin(env.send("decided: 20 GB"))
    env.change("write_handoff", "Build 7 is fixed.\nOpen: the cache.")
    made = env.catch_up()
    assert [part.part for part in made.parts] == [
        "questions", "claims", "entries", "pins", "topics",
    ]  # fmt: skip
    (question,), claims, entries, (pin,), topics = (
        [item.line for item in part.items] for part in made.parts
    )
    assert question.endswith("Z, boss asks: Deploy now? (yes / no)")
    assert claims[0] == "task-7, lease ends in 20 s, claimed 100 s ago"
    assert claims[1] == "task-8, lease ended 3 s ago, claimed 5 s ago"
    assert [line.rpartition(": ")[2] for line in entries] == ["urgent", "first"]
    assert pin.endswith("in general/builds, pinned by ada: decided: 20 GB")
    assert topics[0].startswith(f"{env.topic_id} general/builds: 3 messages, 3 changes, last event")
    assert topics[0].endswith("Build 7 is fixed. Open: the cache.")
    assert all(f"- {line}\n" in made.text for line in (question, *claims, *entries, pin, *topics))


def test_nothing_is_marked_as_read(env):
    env.send("look", to=["ada"])
    env.catch_up()
    assert env.rows("SELECT state FROM x_entries") == [("stored",)]


def test_empty_inbox_has_no_parts(env):
    head = env.hub.feed.head
    made = env.catch_up(since=head)
    assert made.text == (f"# Catch-up for ada, next {head}\nNothing waits, and no topic changed.\n")


def test_every_change_is_in_one_catch_up_and_not_in_the_next(env):
    since, seen = 0, []
    for number in range(5):
        topic_id = env.topic(env.channel_id, f"t{number}")
        made = env.catch_up(since=since)
        seen.append([item.id for item in made.parts[4].items])
        since = made.next
        assert topic_id in seen[-1]
    assert len({topic for page in seen for topic in page}) == 6
    assert sum(map(len, seen)) == 6


def test_topics_beyond_the_scanned_events_are_announced(env, monkeypatch):
    monkeypatch.setattr(queries, "SCANNED_EVENTS_MAX", 2)
    env.send(topic_id=env.topic(env.channel_id, "new"))
    part = env.part("topics")
    assert [item.line.split()[1] for item in part.items] == ["general/new:"]
    assert part.is_bound
    assert part.command == "agentlip listen --since 0 --until-event 4"
    assert not env.part("topics", since=2).is_bound


def test_moved_messages_change_both_topics(env):
    message, other = env.send(), env.topic(env.channel_id, "other")
    since = env.hub.feed.head
    env.hub.patch_message(message, hub_wire.MoveMessage(other, "one"), env.admin)
    assert {item.id for item in env.part("topics", since=since).items} == {env.topic_id, other}


def test_readers_and_plugins_change_no_topic(env):
    env.send("look", to=["ada"])
    since = env.hub.feed.head
    env.store.write(_settle_entry)
    assert env.hub.feed.head > since
    assert env.lines("topics", since=since) == []


def _settle_entry(tx):
    from appliance.hub.entries import writes
    from appliance.hub.entries.queries import Inbox
    from appliance.hub.entries.wire import Acknowledge

    return writes.acknowledge(tx, Inbox("ada", None), Acknowledge([1]), None)


def test_more_items_than_a_part_has_are_a_bound(env, monkeypatch):
    monkeypatch.setattr(queries, "ITEMS_MAX", 2)
    for _ in range(4):
        env.send(to=["ada"])
    part = env.part("entries")
    assert (len(part.items), part.more, part.is_bound) == (2, 1, True)
    assert "## Entries, 1+ more: agentlip inbox mine --as ada\n" in env.catch_up().text
    env.claims.claims = [OwnClaim(f"task-{number}", 1, 1) for number in range(2)]
    part = env.part("claims")
    assert (len(part.items), part.more, part.is_bound) == (2, 0, False)


# -- who sees what -------------------------------------------------------------------------------


def test_questions_for_others_are_left_out(env):
    mine, anyone = env.ask("mine?", may_answer=["ada"]), env.ask("anyone?")
    env.ask("eve's?", may_answer=["eve"])
    assert {item.id for item in env.part("questions").items} == {mine, anyone}
    named = [item.id for item in env.part("questions", principal=env.agent).items]
    assert named == [mine], "the token may not answer questions for everybody"


def test_limited_token_sees_only_its_channels(env):
    other = env.channel("secret")
    secret = env.topic(other, "plans")
    env.send("hidden", topic_id=secret, to=["ada"])
    hidden = env.send("hidden", topic_id=secret)
    env.pin(hidden)
    env.ask("hidden?", topic_id=secret)
    scopes = [f"{scope}@{env.channel_id}" for scope in ("hub:read", "hub:post", "ask:answer")]
    limited = principal_of("tok_ada", "ada", scopes)
    made = env.catch_up(principal=limited)
    assert "hidden" not in made.text
    assert "plans" not in made.text
    assert [item.id for item in made.parts[4].items] == [env.topic_id]
    assert env.catch_ups.pins(wire.PinsQuery(), limited).pins == []
    for verb in (
        lambda: env.catch_ups.topic_state(secret, limited),
        lambda: env.catch_ups.pins(wire.PinsQuery("secret"), limited),
        lambda: env.change("resolve", topic_id=secret, principal=limited),
        lambda: env.change("write_handoff", topic_id=secret, principal=limited),
        lambda: env.pin(hidden, principal=limited),
        lambda: env.pin(hidden, "unpin", principal=limited),
    ):
        with pytest.raises(OtherChannel):
            verb()
    assert env.change("resolve", principal=limited)["changed"]


def test_names_are_limited_to_the_tokens_senders(env):
    ada = Principal("tok_ada", "ada", SCOPES, senders=frozenset({"ada"}))
    assert env.catch_up(name=None, principal=ada).name == "ada"
    with pytest.raises(SenderNotAllowed):
        env.catch_up(name="eve", principal=ada)
    with pytest.raises(NameMissing):
        env.catch_up(name=None, principal=Principal("anonymous", "anonymous", SCOPES))


def test_cursor_beyond_the_newest_event_is_refused(env):
    with pytest.raises(CursorBeyondEnd):
        env.catch_up(since=99)


def test_part_without_the_worker_bus_says_so(env, monkeypatch):
    reader = Principal("tok_reader", "reader", SCOPES)
    assert "## Claims: the token lacks bus:read\n" in env.catch_up(principal=reader).text

    def fail(*_):
        raise Unavailable

    monkeypatch.setattr(env.claims, "own", fail)
    assert "## Claims: the worker bus can't be read\n" in env.catch_up().text
    env.catch_ups = CatchUps(env.hub, None)
    made = env.catch_up()
    assert "## Claims: the worker bus is off\n" in made.text
    assert json.loads(msgspec.json.encode(made))["parts"][1]["unavailable"]


PLANS = {
    "_QUESTIONS": "x_asks_state", "_ENTRIES": "x_entries_open", "_PINNED": "SCAN p",
    "_PINS": "SCAN p", "_TOPICS": "events USING INTEGER PRIMARY KEY",
}  # fmt: skip


@pytest.mark.parametrize(("statement", "index"), PLANS.items())
def test_reads_use_indexes(env, statement, index):
    caller = queries.Caller("ada", None, True, None)
    values = {**caller._asdict(), "channel": None, "after": 0, "until": 9, "rows": 9}

    def explain(reader):
        return reader.rows(f"EXPLAIN QUERY PLAN {getattr(queries, statement)}", values, limit=99)

    steps = [row[3] for row in env.store.read(explain)]
    assert any(index in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN m") or "SCAN x_asks" in step]

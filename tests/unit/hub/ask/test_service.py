"""Asks on a real file: permissions, one answer, deadlines, and what the topic shows."""

import msgspec
import pytest

from appliance.hub import wire as hub_wire
from appliance.hub.access import OtherChannel
from appliance.hub.ask import wire, writes
from appliance.kernel.auth import principal_of
from appliance.kernel.errors import Invalid, KeyReused

DAY = 86_400


def test_question_and_answer_are_messages_of_one_topic(env):
    ask = env.ask(choices=["yes", "no"], blocks=["task-7"], deadline_seconds=60, default="no")
    assert (ask["state"], ask["choices"], ask["blocks"]) == ("waiting", ["yes", "no"], ["task-7"])
    answered = env.answer(ask["id"], "yes")
    assert (answered["state"], answered["answer"], answered["answered_via"]) == (
        "answered", "yes", "api",
    )  # fmt: skip
    assert (answered["answered_by"], answered["answered_principal"]) == ("person", "person")
    assert env.messages() == [("agent", "Deploy?"), ("person", "yes")]
    topics = env.rows("SELECT DISTINCT topic_id FROM messages")
    assert topics == [(ask["topic_id"],)]
    channels = env.rows("SELECT name, title FROM channels JOIN topics ON channel_id = channels.id")
    assert channels == [("asks", "questions")]
    (question, _) = env.rows("SELECT content_raw FROM messages ORDER BY id")
    for words in ("Choices: yes | no", "After 60 s: no", "Blocks: task-7", ask["id"]):
        assert words in question[0]


def test_answer_goes_to_the_topic_that_has_the_question_now(env):
    ask = env.ask()
    channel = ask["channel_id"]
    made = env.hub.create_topic(hub_wire.CreateTopic(channel, "elsewhere"), env.alice)
    target = msgspec.json.decode(made.body)["topic"]["id"]
    env.hub.patch_message(ask["message_id"], hub_wire.MoveMessage(target, "one"), env.alice)
    assert env.answer(ask["id"], "fine")["topic_id"] == target
    assert env.rows("SELECT DISTINCT topic_id FROM messages") == [(target,)]


def test_only_named_tokens_may_answer(env):
    ask = env.ask(may_answer=["bob"])
    with pytest.raises(wire.MayNotAnswer):
        env.answer(ask["id"], "x")
    assert env.answer(ask["id"], "x", env.bob)["answered_principal"] == "bob"


def test_only_the_asker_or_an_admin_cancels(env):
    ask, other = env.ask(), env.ask()
    with pytest.raises(wire.NotYourAsk):
        env.cancel(ask["id"], env.person)
    assert env.cancel(ask["id"])["state"] == "cancelled"
    assert env.cancel(other["id"], env.alice)["answered_by"] == "alice"
    with pytest.raises(wire.AskSettled):
        env.answer(ask["id"], "too late")


def test_same_key_gives_the_same_ask_as_it_is_now(env):
    ask = env.ask(key="k")
    env.answer(ask["id"], "done")
    again = env.ask(key="k")
    assert (again["id"], again["state"], again["answer"]) == (ask["id"], "answered", "done")
    with pytest.raises(KeyReused):
        env.ask("something else", key="k")
    assert env.ask(key="k", principal=env.bob)["id"] != ask["id"]


def test_deadline_gives_the_default(env):
    ask = env.ask(choices=["yes", "no"], default="no", deadline_seconds=60)
    env.clock.pass_seconds(59)
    assert env.run_loop() == {"settled": 0}
    env.clock.pass_seconds(1)
    with pytest.raises(wire.AskSettled, match="deadline"):
        env.answer(ask["id"], "yes")
    assert env.run_loop() == {"settled": 1}
    settled = env.show(ask["id"])
    assert (settled.state, settled.answer, settled.answered_via) == ("defaulted", "no", "deadline")
    assert env.messages()[-1] == ("appliance", "no")


@pytest.mark.parametrize("days", [-3, 3])
def test_deadline_does_not_move_with_the_wall_clock(env, days):
    ask = env.ask(deadline_seconds=60)
    env.clock.ms += days * DAY * 1000
    assert env.run_loop() == {"settled": 0}
    env.clock.pass_seconds(60)
    assert env.run_loop() == {"settled": 1}
    assert env.show(ask["id"]).state == "expired"


def test_waiting_asks_of_a_token_are_limited(env, monkeypatch):
    monkeypatch.setattr(writes, "WAITING_MAX", 5)
    asks = [env.ask(f"question {number}") for number in range(5)]
    with pytest.raises(wire.TooManyAsks):
        env.ask("one more")
    env.ask("of another token", principal=env.bob)
    env.cancel(asks[0]["id"])
    env.ask("one more")


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": " \u200b"},
        {"text": "é" * 8193},
        {"choices": ["a", "a"]},
        {"choices": ["a"], "default": "b", "deadline_seconds": 1},
        {"default": "a"},
        {"choices": [" "]},
        {"blocks": ["x\0"]},
    ],
)
def test_questions_that_are_refused(env, wrong):
    with pytest.raises(Invalid):
        env.ask(**wrong)
    assert env.messages() == []


def test_deleted_question_can_still_be_answered(env):
    """The tombstone is in the topic. A recovery of a damaged file may even have lost it."""
    first, second = env.ask(), env.ask()
    env.hub.patch_message(first["message_id"], hub_wire.DeleteMessage("agent"), env.alice)
    env.store.write(_lose_question, second["id"])
    assert env.answer(first["id"], "ok")["reply_id"]
    assert env.answer(second["id"], "ok")["reply_id"] is None


def _lose_question(tx, ask_id):
    tx.execute("UPDATE x_asks SET message_id = 'lost' WHERE id = ?", (ask_id,))


def test_listing_pages_through_all_with_filters(env):
    named = [[], ["bob"], [], ["bob"], []]
    ids = [env.ask("question", may_answer=names)["id"] for names in named]
    env.answer(ids[0], "x")

    def listed(principal=env.person, **query):
        query, pages = {"limit": 2, **query}, []
        while True:
            page = env.asks.list(msgspec.convert(query, wire.AsksQuery), principal)
            pages += [ask.id for ask in page.asks]
            if not page.has_more:
                return pages[::-1]
            query["after"] = page.next

    assert listed() == ids
    assert listed(state="waiting") == ids[1:]
    assert listed(state="waiting", mine=True) == [ids[2], ids[4]]
    assert listed(env.bob, state="waiting", mine=True) == ids[1:]
    assert listed(asker="nobody") == []


LIMITS = {
    "one channel for all scopes": ["hub:read@{}", "hub:post@{}", "ask:answer@{}"],
    "reads one channel": ["hub:read@{}", "ask:answer"],
    "posts in one channel": ["hub:read", "hub:post@{}", "ask:answer"],
    "answers in one channel": ["hub:read", "ask:answer@{}"],
}


@pytest.mark.parametrize("scopes", LIMITS.values(), ids=LIMITS)
def test_limit_of_any_scope_holds_for_answers(env, scopes):
    made = env.hub.create_channel(hub_wire.CreateChannel("team"), env.alice)
    team = msgspec.json.decode(made.body)["channel"]["id"]
    env.hub.create_topic(hub_wire.CreateTopic(team, "t"), env.alice)
    inside, outside = env.ask(topic_id="team/t"), env.ask(choices=["secret", "choice"])
    member = principal_of("tok_m", "member", [scope.format(team) for scope in scopes])
    for answer in ("x", "secret"):
        with pytest.raises((OtherChannel, wire.MayNotAnswer)) as refused:
            env.answer(outside["id"], answer, member)
        assert "secret" not in str(refused.value.to_body())
    listed = env.asks.list(wire.AsksQuery(mine=True), member).asks
    assert [ask.id for ask in listed] == [inside["id"]]
    assert env.answer(inside["id"], "x", member)["state"] == "answered"


def test_token_that_only_posts_sees_its_own_asks_through_tools(env):
    own, other = env.ask(), env.ask(principal=env.bob)
    agent = principal_of(env.agent.id, "agent", ["hub:post"])
    assert env.asks.show(own["id"], 0, agent, "hub:post").ask.id == own["id"]
    with pytest.raises(wire.NoSuchAsk):
        env.asks.show(other["id"], 0, agent, "hub:post")


def test_refusal_reveals_nothing_about_a_settled_ask(env):
    ask = env.ask(may_answer=["bob"])
    env.answer(ask["id"], "secret", env.bob)
    with pytest.raises(wire.MayNotAnswer):
        env.answer(ask["id"], "x")
    with pytest.raises(wire.NotYourAsk):
        env.cancel(ask["id"], env.person)


def test_tokens_limited_to_channels_see_and_answer_theirs(env):
    made = env.hub.create_channel(hub_wire.CreateChannel("team"), env.alice)
    team = msgspec.json.decode(made.body)["channel"]["id"]
    env.hub.create_topic(hub_wire.CreateTopic(team, "t"), env.alice)
    inside = env.ask(topic_id="team/t")
    outside = env.ask()
    scopes = [f"{scope}@{team}" for scope in ("hub:read", "hub:post", "ask:answer")]
    member = principal_of("tok_m", "member", scopes)
    assert [ask.id for ask in env.asks.list(wire.AsksQuery(), member).asks] == [inside["id"]]
    for call in (
        lambda: env.asks.show(outside["id"], 0, member),
        lambda: env.answer(outside["id"], "x", member),
        lambda: env.cancel(outside["id"], member),
        lambda: env.ask(principal=member),
    ):
        with pytest.raises(OtherChannel):
            call()
    assert env.answer(inside["id"], "x", member)["state"] == "answered"

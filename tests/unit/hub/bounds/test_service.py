"""Pauses, ceilings and hops, with a clock that can be set."""

from datetime import datetime

import pytest

from appliance.hub import pausing
from appliance.hub.agents import wire as agents_wire
from appliance.hub.bounds import wire
from appliance.hub.ceilings import DAYS_KEPT
from appliance.integrations.notify_ask import observe
from appliance.kernel.auth import ANONYMOUS, OWNER, Principal
from appliance.kernel.clock import iso
from appliance.kernel.pauses import Paused

AGENT = Principal("tok_a", "ada", frozenset({"hub:read", "hub:post"}))
PERSON = Principal("tok_p", "pia", frozenset({"hub:post", "ask:answer"}))
SERVER = Principal("server", "the workspace's token", frozenset({"admin"}))
BROWSER = Principal("tok_b", "bea", frozenset({"hub:post"}), session="s1")


def send_refused(env, sender="ada", principal=AGENT):
    with pytest.raises(Paused) as refused:
        env.send(sender=sender, principal=principal)
    return refused.value


def test_setting_the_clock_ends_no_pause_and_prolongs_none(env):
    env.pause(principal="ada", seconds=60)
    env.clock.ms += 3_600_000
    env.round()
    send_refused(env)
    env.clock.ms -= 7_200_000
    env.clock.pass_seconds(61)
    env.send(sender="ada", principal=AGENT)
    assert env.paused() == ["ada"]
    assert env.round() == {"handled": 1}
    assert env.paused() == []


def test_pause_until_a_time_ends_then(env):
    until_ms = env.clock.now_ms() + 90_987
    until = datetime.fromtimestamp(until_ms / 1000).astimezone().isoformat()
    assert env.pause(principal="ada", until=until).until == iso(until_ms)
    env.clock.pass_seconds(90.5)
    send_refused(env)
    env.clock.pass_seconds(0.5)
    env.send(sender="ada", principal=AGENT)


def test_refusal_has_author_reason_end_and_command(env):
    env.pause(principal="ada b", reason="freeze", seconds=60)
    refused = send_refused(env, "ada b")
    assert refused.hint.startswith("agentlip resume --principal 'ada b'; paused by alice until 2")
    assert refused.hint.endswith(": freeze")
    assert refused.details["cause"] == "operator"


def test_second_pause_replaces_the_first_and_a_key_repeats_it(env):
    first = env.pause(principal="ada", reason="one", seconds=60, key="k")
    assert env.pause(principal="ada", reason="one", seconds=60, key="k") == first
    assert env.pause(principal="ada", reason="two").until is None
    assert len(env.paused()) == 1
    assert send_refused(env).details["reason"] == "two"


def test_pauses_are_paged_and_limited(env, monkeypatch):
    monkeypatch.setattr(pausing, "PAUSES_MAX", 3)
    for name in ("a", "b", "c"):
        env.pause(principal=name)
    with pytest.raises(wire.TooManyPauses):
        env.pause(principal="d")
    env.pause(principal="c", reason="again")
    first = env.bounds.list_pauses(wire.PausesQuery(limit=2))
    assert [pause.subject for pause in first.pauses] == ["a", "b"]
    rest = env.bounds.list_pauses(wire.PausesQuery(after=first.next, limit=2))
    assert ([pause.subject for pause in rest.pauses], rest.has_more) == (["c"], False)


@pytest.mark.parametrize(
    ("principal", "sender", "is_refused"),
    [
        (AGENT, "ada", True), (ANONYMOUS, "x", True), (PERSON, "pia", False),
        (BROWSER, "bea", False), (SERVER, "boss", False), (OWNER, "boss", False),
        (SERVER, "runner", True), (OWNER, "reader", True),
    ],
)  # fmt: skip
def test_pause_of_all_is_for_agents(env, principal, sender, is_refused):
    env.agents.report("runner", agents_wire.Report("r", "asleep"), AGENT)
    env.list("reader")
    env.pause(all=True)
    if is_refused:
        send_refused(env, sender, principal)
    else:
        env.send(sender=sender, principal=principal)


def test_names_that_agents_use_are_known_after_a_restart(env):
    env.list("reader")
    env.pause(all=True)
    env.reopen()
    send_refused(env, "reader", SERVER)


def test_token_with_one_sender_is_paused_by_that_name(env):
    alone = Principal("tok_x", "ci-7", AGENT.scopes, senders=frozenset({"ada"}))
    env.pause(principal="ada")
    assert env.hub.pauses.find(alone) is not None
    both = Principal("tok_y", "ci-8", AGENT.scopes, senders=frozenset({"ada", "bob"}))
    assert env.hub.pauses.find(both) is None
    assert env.hub.pauses.find(both, ["ada"]) is not None


def test_messages_from_the_appliance_pass_a_paused_topic(env):
    env.pause(topic_id=env.topic_id)
    send_refused(env)
    notices = Principal("appliance:notify", "appliance:notify", frozenset({"hub:post"}))
    env.send(sender="notify", principal=notices)
    assert env.rows("SELECT count(*) FROM x_hops") == [(0,)]


def test_new_day_has_a_new_ceiling_and_the_pause_stays(env):
    env.ceiling("ada", messages=2)
    for _ in range(2):
        env.send(sender="ada", principal=AGENT)
    env.clock.pass_seconds(86_400)
    env.clock.ms += 86_400_000
    send_refused(env)
    assert env.resume(principal="ada").cause == "ceiling"
    for _ in range(2):
        env.send(sender="ada", principal=AGENT)
    send_refused(env)


def test_usage_of_old_days_is_pruned(env):
    env.ceiling("ada", messages=1000)
    for _ in range(3):
        env.send(sender="ada", principal=AGENT)
        env.clock.ms += (DAYS_KEPT + 1) * 86_400_000
    assert env.rows("SELECT count(*) FROM x_usage") == [(1,)]


def test_problems_name_ceilings_and_pauses_by_limits(env):
    env.ceiling("ada", messages=10)
    for _ in range(8):
        env.send(sender="ada", principal=AGENT)
    env.pause(principal="bob")
    problems = observe(dict, None, None, env.bounds)["bounds"]
    assert [problem.text for problem in problems] == ["ada has used 80 % of its ceiling for today"]
    for _ in range(2):
        env.send(sender="ada", principal=AGENT)
    first, _ = observe(dict, None, None, env.bounds)["bounds"]
    assert first.text == "ada is paused: the ceiling for a day is reached: 10 messages"


def test_ceilings_are_paged_and_changed(env):
    for name in ("a", "b", "c"):
        env.ceiling(name, messages=5)
    env.ceiling("b", turns=7)
    first = env.bounds.list_ceilings(wire.CeilingsQuery(limit=2))
    assert [(row.name, row.messages, row.turns) for row in first.ceilings] == [
        ("a", 5, None), ("b", None, 7),
    ]  # fmt: skip
    rest = env.bounds.list_ceilings(wire.CeilingsQuery(after=first.next))
    assert ([row.name for row in rest.ceilings], rest.has_more) == (["c"], False)


@pytest.fixture
def few_hops(monkeypatch):
    monkeypatch.setattr(pausing, "HOPS_MAX", 3)


def talk(env, count=3):
    for number in range(count + 1):
        name = ("ada", "bob")[number % 2]
        env.send(sender=name, principal=Principal(f"tok_{name}", name, AGENT.scopes))


def test_paused_topic_gets_one_question_until_its_answer(env, few_hops):
    talk(env)
    send_refused(env)
    for _ in range(3):
        env.round()
    assert [pause.topic for pause in env.asks.asked] == ["general/builds"]
    env.asks.answers["ask_1"] = "keep paused"
    env.round()
    send_refused(env)
    env.asks.answers["ask_1"] = "continue"
    env.round()
    talk(env)
    send_refused(env)


def test_resumed_topic_cancels_the_question(env, few_hops):
    talk(env)
    env.round()
    env.resume(topic_id=env.topic_id)
    assert env.asks.cancelled == ["ask_1"]


def test_refused_messages_count_no_hops(env, few_hops):
    talk(env, 1)
    env.pause(topic_id=env.topic_id, reason="mine")
    send_refused(env)
    assert env.rows("SELECT hops FROM x_hops") == [(1,)]


def test_pause_of_an_agent_is_in_its_receipts(env):
    env.agents.report("ada", agents_wire.Report("r", "asleep", begins=True), AGENT)
    sent = env.send(to=["ada"])
    env.pause(principal="ada")
    assert env.receipts(sent)[0].waking == "paused"
    env.resume(principal="ada")
    assert env.receipts(sent)[0].waking == "asleep"


def test_target_that_is_not_paused_is_not_resumed(env):
    with pytest.raises(wire.NotPaused):
        env.resume(principal="ada")

"""Triggers: conditions, effects, limits."""

import msgspec
import pytest

from appliance.courier.trigger import HOPS, SYSTEM, TriggerEngine, TriggerRule, check, fill_template
from tests.support.courier import envelope


def rules_of(*rows):
    return [msgspec.convert(row, TriggerRule) for row in rows]


def engine_of(*rows, hops_max=3):
    return TriggerEngine(rules_of(*rows), hops_max)


def fire(engine, env, stream="s", now=0.0):
    return engine.fire(engine.for_stream(stream), stream, env, now)


LOG = {
    "id": "trig.jen.log",
    "when": {"type": "sprint.log", "from": "agents/Jen/outbox"},
    "do": [
        {
            "action": "notify",
            "to": "agents/architect/inbox",
            "payload": {"title": "Jen posted sprint log", "ref": "${env.id}"},
        }
    ],
    "limits": {"cooldownMs": 5000},
}


def test_example_of_the_specification():
    env = envelope("e-1", **{"type": "sprint.log", "from": "agents/Jen/outbox", "corr": "c-42"})
    changed, (effect,) = fire(engine_of(LOG), env)
    assert changed is None
    assert effect.to == "agents/architect/inbox"
    notice = effect.envelope
    assert notice["type"] == "notify"
    assert notice["from"] == SYSTEM
    assert notice["refs"] == ["e-1"]
    assert notice["corr"] == "c-42"
    assert notice["payload"]["title"] == "Jen posted sprint log"
    assert notice["payload"]["ref"] == "e-1"


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ({"to": "agents/*"}, True),
        ({"to": "other"}, False),
        ({"type": "t"}, True),
        ({"type": "u*"}, False),
        ({"from": "jen"}, True),
        ({"from": "bo"}, False),
        ({"tags": ["a"]}, True),
        ({"tags": ["a", "c"]}, False),
        ({"headers": {"p": "high"}}, True),
        ({"headers": {"p": "low"}}, False),
        ({"headers": {"q": 1}}, False),
    ],
)
def test_every_condition_must_hold(when, matches):
    engine = engine_of({"id": "r", "when": when, "do": [{"action": "emit", "name": "n"}]})
    env = envelope("e", **{"from": "jen", "tags": ["a", "b"], "headers": {"p": "high"}})
    _, effects = fire(engine, env, "agents/Jen/inbox")
    assert bool(effects) is matches


def test_cooldown_starts_at_the_last_firing_and_drops_matches():
    engine = engine_of(LOG)
    env = envelope("e", **{"type": "sprint.log", "from": "agents/Jen/outbox"})
    fired = [bool(fire(engine, env, now=now)[1]) for now in (0, 4_999, 5_000, 5_001)]
    assert fired == [True, False, True, False]
    assert engine.states["trig.jen.log"].suppressed == 2


def test_enriched_fields_are_visible_to_later_effects():
    engine = engine_of(
        {
            "id": "r",
            "when": {"type": "t"},
            "do": [
                {"action": "enrich", "headers": {"seen": "${env.id}"}, "tags": ["x"]},
                {"action": "enrich", "payload": {"more": "${env.payload}"}},
                {"action": "route", "to": "copy"},
            ],
        }
    )
    changed, (effect,) = fire(engine, envelope("e"))
    assert changed["headers"] == {"seen": "e"}
    assert changed["tags"] == ["x"]
    assert changed["payload"] == {"n": 1, "more": {"n": 1}}
    assert effect.envelope["to"] == "copy"
    assert effect.envelope["headers"] == {"seen": "e", HOPS: 1}


def test_loop_of_rules_ends_at_the_hop_limit():
    engine = engine_of(
        {"id": "a", "when": {"to": "a"}, "do": [{"action": "route", "to": "b"}]},
        {"id": "b", "when": {"to": "b"}, "do": [{"action": "route", "to": "a"}]},
        hops_max=5,
    )
    env, stream, hops = envelope("e"), "a", 0
    while True:
        _, effects = fire(engine, env, stream)
        if not effects:
            break
        env, stream, hops = effects[0].envelope, effects[0].to, hops + 1
        assert hops <= 5
    assert hops == 5


@pytest.mark.parametrize("forged", [-5, "x", None, [], 10**30])
def test_forged_hop_count_raises_nothing(forged):
    engine = engine_of({"id": "a", "when": {"to": "s"}, "do": [{"action": "route", "to": "b"}]})
    assert fire(engine, envelope("e", headers={HOPS: forged})) is not None


def test_whole_template_keeps_its_type_and_unknown_path_is_empty():
    env = envelope("e", payload={"deep": {"n": [1, 2]}})
    assert fill_template("${env.payload.deep}", env) == {"n": [1, 2]}
    assert fill_template("<${env.payload.deep.n}${env.nothing}>", env) == "<[1,2]>"
    assert fill_template({"a": ["${env.id}", 7]}, env) == {"a": ["e", 7]}
    assert fill_template("${other.id} $HOME", env) == "${other.id} $HOME"


def test_check_reports_problems():
    rules = rules_of(
        {"id": "a", "do": [{"action": "route", "to": "agents/*"}]},
        {"id": "a", "when": {"to": "x"}, "do": [{"action": "emit", "name": "n"}]},
    )
    problems = check(rules, webhooks=True)
    assert len(problems) == 3
    nameless = rules_of({"id": "n", "when": {"to": "x"}, "do": [{"action": "route", "to": "/a"}]})
    assert check(nameless, webhooks=True) == ["n: route needs the name of a stream"]
    assert check(rules_of(LOG), webhooks=False) == []


def test_unknown_action_or_key_is_refused():
    with pytest.raises(msgspec.ValidationError):
        rules_of({"id": "a", "do": [{"action": "shell", "to": "x"}]})
    with pytest.raises(msgspec.ValidationError):
        rules_of({"id": "a", "when": {"tpye": "x"}, "do": [{"action": "emit", "name": "n"}]})

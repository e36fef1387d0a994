"""Triggers: conditions, effects, limits."""

import msgspec
import pytest

from appliance.courier.trigger import HOPS, SYSTEM, TriggerEngine, TriggerRule, fill_template
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

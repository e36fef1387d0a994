"""Several admins approve an agent, with their keys or by answering a question, each once."""

import json
from pathlib import Path

import pytest

from appliance.hub.ask.settings import AskSettings
from appliance.hub.ask.wire import MayNotAnswer
from appliance.integrations.relay_ask import HubApprovalAsks
from appliance.kernel.auth import Principal
from appliance.relay import writes
from appliance.relay.loops import ApprovalAsker
from tests.support.relay import RelayFixture
from tests.unit.hub.ask.conftest import AskEnvironment, new_file_in

PEOPLE = {
    name: Principal(f"tok_{name}", name, frozenset({"hub:read", "ask:answer"}))
    for name in ("ada", "bo", "eve")
}


@pytest.fixture
def relay(tmp_path):
    fixture = RelayFixture(tmp_path / "relay", approvals=2)
    fixture.verify("anna")
    fixture.register("anna")
    yield fixture
    fixture.close()


@pytest.fixture
def env(tmp_path):
    env = AskEnvironment(Path(new_file_in(tmp_path / "hub")))
    env.asks.settings = AskSettings(("ada@example.org",), "https://hub.example.org")
    yield env
    env.store.close()


@pytest.fixture
def asker(relay, env):
    return ApprovalAsker(relay.relay, HubApprovalAsks(env.asks, relay.clock))


def run(asker, relay):
    relay.checker.run_once(relay.clock.now_ms())
    return asker.run_once(relay.clock.now_ms())


def approve(relay, by, name="anna"):
    reply = relay.as_admin("POST", f"/registry/agents/{name}/approve", by=by)
    assert reply.status_code == 200
    return reply.json["agent"]["status"]


def status(relay, name="anna"):
    return relay.request("GET", f"/registry/agents/{name}").json["status"]


def waiting(env):
    """The questions that wait, by the names of those that may answer."""
    rows = env.rows("SELECT id FROM x_asks WHERE state = 'waiting' ORDER BY id")
    asks = [env.show(ask_id) for (ask_id,) in rows]
    return {tuple(ask.may_answer): ask for ask in asks}


def test_agent_needs_as_many_admins_as_the_setting_says(relay):
    assert [approve(relay, by) for by in ("ada", "ada")] == ["pending", "pending"]
    (listed,) = relay.as_admin("GET", "/admin/pending").json
    assert (listed["approvals"], listed["approvalsNeeded"]) == (["ada"], 2)
    assert relay.request("GET", "/contacts", by="anna").status_code == 403
    assert [approve(relay, by) for by in ("bo", "ada")] == ["active", "active"]
    rows = relay.rows("SELECT admin FROM log WHERE name = 'agent.approved' ORDER BY event_id")
    assert rows == [("ada",), ("bo",)]


def test_each_admin_gets_one_question_with_the_checklist(relay, env, asker):
    assert asker.run_once(0) == {"waiting": 0}  # the endpoint was not tried yet
    assert waiting(env) == {}
    for _ in range(3):
        run(asker, relay)
    asks = waiting(env)
    assert asks.keys() == {("ada",), ("bo",)}
    text = asks["ada",].text
    assert "anna@" not in text  # every reader of the channel sees the question
    for part in (
        "anna  -  https://",
        "SHA256:",
        "email-domain: example.org",
        "NO  endpoint",
        "burst",
        "0 of 2",
    ):
        assert part in text
    assert asks["ada",].choices == ["approve", "revoke"]


def test_answers_of_two_people_approve_the_agent(relay, env, asker):
    run(asker, relay)
    asks = waiting(env)
    for wrong in ("eve", "bo"):
        with pytest.raises(MayNotAnswer):
            env.answer(asks["ada",].id, "approve", PEOPLE[wrong])
    env.answer(asks["ada",].id, "approve", PEOPLE["ada"])
    run(asker, relay)
    assert status(relay) == "pending"
    assert waiting(env).keys() == {("bo",)}  # no second question for ada
    env.answer(asks["bo",].id, "approve", PEOPLE["bo"])
    run(asker, relay)
    assert status(relay) == "active"
    run(asker, relay)
    assert waiting(env) == {}


def test_answer_starts_a_round_at_once(relay, env, monkeypatch):
    rounds = []
    monkeypatch.setattr(ApprovalAsker, "nudge", lambda _self: rounds.append("nudged"))
    asker = ApprovalAsker(relay.relay, HubApprovalAsks(env.asks, relay.clock))
    run(asker, relay)
    assert rounds == []
    env.answer(waiting(env)["ada",].id, "approve", PEOPLE["ada"])
    assert rounds == ["nudged"]


def test_answer_that_revokes_is_announced_in_a_signed_broadcast(relay, env, asker):
    run(asker, relay)
    env.answer(waiting(env)["bo",].id, "revoke", PEOPLE["bo"])
    run(asker, relay)
    assert status(relay) == "revoked"
    ((kind, payload, sender),) = relay.rows("SELECT type, payload, sender FROM broadcasts")
    assert (kind, sender) == ("revocation", "_relay")
    fields = json.loads(payload)
    assert (fields["agent"], fields["admin"]) == ("anna", "bo")


def test_key_and_answer_of_one_admin_count_once(relay, env, asker):
    run(asker, relay)
    env.answer(waiting(env)["ada",].id, "approve", PEOPLE["ada"])
    run(asker, relay)
    assert approve(relay, "ada") == "pending"
    assert approve(relay, "bo") == "active"
    run(asker, relay)
    assert waiting(env) == {}  # bo's question is withdrawn


def test_question_that_ended_is_followed_by_another(relay, env, asker):
    run(asker, relay)
    first = waiting(env)["ada",]
    HubApprovalAsks(env.asks, relay.clock).cancel(first.id)
    for _ in range(3):
        run(asker, relay)
    assert waiting(env).keys() == {("bo",)}  # not on the same day
    relay.clock.pass_seconds(86_400)
    for _ in range(2):
        run(asker, relay)
    assert waiting(env).keys() == {("ada",), ("bo",)}


def test_admin_that_was_removed_or_revoked_does_not_decide(relay, env, asker):
    relay.relay._approvals = 1
    run(asker, relay)
    asks = waiting(env)
    for name in ("ada", "bo"):
        env.answer(asks[name,].id, "approve", PEOPLE[name])
    relay.store.write(writes.remove_admin, "ada")
    relay.relay.open()
    relay.verify("bo", address="x")
    assert relay.register("bo", address="x").status_code == 201
    relay.as_admin("POST", "/registry/agents/bo/revoke", by="bo")
    run(asker, relay)
    assert status(relay) == "pending"


def test_admin_gets_the_question_by_mail_if_its_address_may_get_mails(relay, env, asker):
    for name in ("ada", "bo"):
        relay.verify(name, address=name)
        relay.register(name, address=name)
        for by in ("ada", "bo"):
            approve(relay, by, name)
    run(asker, relay)
    rows = env.rows("SELECT may_answer_json, mail_to_json FROM x_asks ORDER BY may_answer_json")
    assert rows == [('["ada","ada@example.org"]', '["ada@example.org"]'), ('["bo"]', "[]")]


def test_text_of_an_agent_can_not_control_a_terminal(relay, env, asker):
    relay.verify("eve", "eve\x1b[2J@example.org", address="x")
    relay.register("eve", ownerEmail="eve\x1b[2J@example.org", address="x")
    run(asker, relay)
    assert all("\x1b" not in ask.text for ask in waiting(env).values())
    assert len(env.rows("SELECT 1 FROM x_asks")) == 4

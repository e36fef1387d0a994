"""Requests for contact become questions to the agent's owner, whose answer is carried out once."""

from pathlib import Path

import pytest

from appliance.hub.ask.settings import AskSettings
from appliance.integrations.mailbox_ask import HubContactAsks
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.mailbox.contact_asks import ContactAsker
from appliance.sdk.network.agent import NetworkAgent
from tests.support.http import Lines
from tests.support.network import MALLORY, show_other_key
from tests.support.relay import key
from tests.unit.hub.ask.conftest import AskEnvironment, new_file_in


class Owner:
    """Owns bert, whose questions are in a hub."""

    def __init__(self, network, env):
        self.network, self.env, self.lines = network, env, Lines()
        self.asks, self.registered = HubContactAsks(env.asks), set()
        self.restart()

    def restart(self):
        """A new asker, as after a kill: only the files remember anything."""
        self.asker = ContactAsker(self.asks, self.network.clock, Log(self.lines))

    @property
    def bert(self):
        return self.network.agents["bert"]

    def request(self, *names, greeting="hi"):
        for name in names:
            if name not in self.registered:
                self.network.relay.clock.pass_seconds(40)  # the relay limits mails and approvals
                self.network.relay.add(name)
                self.registered.add(name)
            body = {"to": "bert", "greeting": greeting}
            reply = self.network.relay.request("POST", "/contacts/request", body, by=name)
            assert reply.status_code == 201
            self.network.relay.clock.pass_seconds(1)

    def round(self):
        """One heartbeat, and one round of the asker."""
        self.network.relay.clock.pass_seconds(61)
        self.bert.poll()
        self.asker.follow(self.bert)

    def all(self, state="waiting"):
        rows = self.env.rows("SELECT id, state FROM x_asks ORDER BY id")
        return [self.env.show(ask_id) for ask_id, current in rows if current == state]

    def answer(self, text):
        (ask,) = self.all()
        self.env.answer(ask.id, text)

    def contacts(self):
        return [contact.agent for contact in self.bert.contacts()]

    def waiting(self):
        return [row["from"] for row in self.bert.pending_requests()]


@pytest.fixture
def network(network):
    network.agent("bert")
    return network


@pytest.fixture
def owner(network, tmp_path):
    env = AskEnvironment(Path(new_file_in(tmp_path / "hub")))
    env.asks.settings = AskSettings(("bert@example.org",), "https://hub.example.org")
    yield Owner(network, env)
    env.store.close()


def test_request_becomes_one_question_with_the_safety_number(network, owner):
    owner.request("anna", greeting="Hello\n\x1b[2J\u202e> Choices: accept")
    for _ in range(3):
        owner.round()
    (ask,) = owner.all()
    lines = ask.text.splitlines()
    assert lines[0] == "May anna become a contact of bert?"
    assert "Owner: anna@example.org" in lines
    assert "Greeting: Hello [2J > Choices: accept" in lines  # one line, and no control characters
    assert f"Safety number: {owner.bert.safety_number_with(str(key('anna').public))}" in lines
    assert ask.choices == ["accept", "deny", "block"]
    assert ask.blocks == ["agent bert"]


@pytest.mark.parametrize(
    ("answer", "contacts"), [("accept", ["anna"]), ("deny", []), ("block", [])]
)
def test_answer_is_carried_out(network, owner, answer, contacts):
    owner.request("anna")
    owner.round()
    owner.answer(answer)
    owner.round()
    assert owner.contacts() == contacts
    assert owner.waiting() == []
    assert owner.all() == []
    owner.round()
    assert owner.all() == []


def test_blocked_agent_is_denied_without_a_question(network, owner):
    owner.request("anna")
    owner.round()
    owner.answer("block")
    owner.round()
    owner.request("anna")
    owner.round()
    assert (owner.all(), owner.waiting()) == ([], [])
    owner.bert.request_contact("anna")  # ends the block
    network.relay.request("POST", "/contacts/bert/deny", by="anna")
    owner.request("anna")
    owner.round()
    assert len(owner.all()) == 1


def test_denied_agent_that_asks_again_gets_another_question(network, owner):
    owner.request("anna")
    owner.round()
    owner.answer("deny")
    owner.round()
    owner.request("anna")
    owner.round()
    assert len(owner.all()) == 1
    assert owner.waiting() == ["anna"]


def test_hundred_requests_make_one_question_and_one_mail(network, owner):
    names = [f"agent{number}" for number in range(100)]
    owner.request(*names)
    for _ in range(3):
        owner.round()
    (ask,) = owner.all()
    assert ask.text.splitlines()[-1].startswith("99 more requests wait: agent1, agent2, ")
    assert ask.text.endswith(", …")
    assert ask.choices[3:] == ["deny all", "block all"]
    assert owner.env.rows("SELECT count(*) FROM x_asks WHERE mailed = 0") == [(1,)]
    owner.answer("deny all")
    for _ in range(4):  # the relay allows 60 requests in a minute
        owner.round()
    assert (owner.waiting(), owner.all()) == ([], [])


def test_answer_to_one_request_is_followed_by_the_next_question(network, owner):
    owner.request("anna", "cleo")
    owner.round()
    owner.answer("accept")
    owner.round()
    owner.round()
    (ask,) = owner.all()
    assert ask.text.startswith("May cleo ")
    assert (owner.contacts(), owner.waiting()) == (["anna"], ["cleo"])


@pytest.mark.parametrize("answer", ["accept", "deny", "block"])
@pytest.mark.parametrize("after_deed", [False, True])
def test_kill_between_answer_and_deed_repeats_the_deed_once(
    network, owner, monkeypatch, answer, after_deed
):
    owner.request("anna")
    owner.round()
    owner.answer(answer)
    carry_out = NetworkAgent.answer_requests

    def fail(*arguments):
        if after_deed:
            carry_out(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkAgent, "answer_requests", fail)
    with pytest.raises(KeyboardInterrupt):
        owner.round()
    monkeypatch.setattr(NetworkAgent, "answer_requests", carry_out)
    owner.restart()
    network.open("bert")
    for _ in range(2):
        owner.round()
    assert owner.contacts() == (["anna"] if answer == "accept" else [])
    events = network.relay.request("GET", "/contacts/events", by="anna").json["events"]
    assert [event["event"] for event in events] == (["accepted"] if answer == "accept" else [])
    assert (owner.all(), owner.waiting()) == ([], [])


def test_answer_is_not_carried_out_on_a_later_request(network, owner, monkeypatch):
    """The deed was done, and the agent asks again before the restarted appliance looks."""
    owner.request("anna")
    owner.round()
    owner.answer("deny")
    network.relay.request("POST", "/contacts/anna/deny", by="bert")
    owner.request("anna")
    owner.asker.follow(owner.bert)
    owner.round()
    owner.round()
    assert owner.waiting() == ["anna"]
    assert len(owner.all()) == 1


def test_kill_before_the_question_was_noted_makes_no_second_one(network, owner, monkeypatch):
    owner.request("anna")
    follow = owner.asks.follow

    def fail(question):
        follow(question)
        raise KeyboardInterrupt

    owner.asks.follow = fail
    with pytest.raises(KeyboardInterrupt):
        owner.round()
    owner.asks.follow = follow
    owner.request("cleo")  # would change the text
    owner.restart()
    owner.round()
    assert len(owner.all()) == 1


def test_question_ends_when_the_request_is_settled_elsewhere(network, owner):
    owner.request("anna")
    owner.round()
    other = NetworkAgent(owner.bert.folder.path, clock=network.clock)  # the command line
    other.accept_contact("anna")
    other.close()
    network.relay.clock.pass_seconds(6)
    owner.asker.follow(owner.bert)  # before the next heartbeat
    assert owner.all() == []
    assert len(owner.all("cancelled")) == 1


def test_question_that_ends_unanswered_is_not_repeated(network, owner):
    owner.request("anna")
    owner.round()
    owner.env.clock.pass_seconds(30 * 86_400 + 1)
    owner.env.run_loop()
    for _ in range(2):
        owner.round()
    assert owner.all() == []
    assert len(owner.all("expired")) == 1
    assert owner.waiting() == ["anna"]


def test_accepted_contact_has_the_key_that_the_owner_saw(network, owner):
    """Not another key, which the relay shows after the answer."""
    owner.request("anna")
    owner.round()
    owner.answer("accept")
    show_other_key(network, "anna", MALLORY)
    owner.round()
    (pin,) = owner.bert.pins()
    assert (pin.key, pin.state) == (str(key("anna").public), "changed")


def test_hub_that_fails_is_tried_again_later(network, owner):
    owner.request("anna")
    follow = owner.asks.follow

    def fail(_):
        raise Unavailable("the disk is full")

    owner.asks.follow = fail
    owner.round()
    assert b'"level":"warning"' in owner.lines.getvalue()
    owner.asks.follow = follow
    owner.round()
    assert len(owner.all()) == 1


@pytest.mark.parametrize(
    "row",
    [None, {}, {"from": "a b", "publicKey": str(key("a").public)}, {"from": "a", "publicKey": "x"},
     {"from": "a", "publicKey": str(key("a").public), "greeting": 7}],
)  # fmt: skip
def test_row_that_no_agent_can_have_makes_no_request(network, owner, row):
    assert owner.bert.requests.sync([row], 0) == []
    assert owner.bert.requests.waiting() == []

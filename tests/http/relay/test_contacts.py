"""Contacts: the handshake of two agents, and its state machine driven at random."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.kernel.state_machine import StateMachine
from appliance.relay.states import ACTIVE, PENDING
from tests.support.relay import RelayFixture

REQUEST = "/contacts/request"
NOTHING = "nothing"
CONTACT = StateMachine({
    (NOTHING, "request"): PENDING,
    (PENDING, "accept"): ACTIVE,
    (PENDING, "deny"): NOTHING,
    (ACTIVE, "remove"): NOTHING,
})  # fmt: skip


def ask(relay, by, to, **more):
    return relay.request("POST", REQUEST, {"to": to, **more}, by=by)


def test_changes_of_contacts_are_logged_without_greetings(relay):
    ask(relay, "anna", "bert", greeting="a secret")
    relay.request("POST", "/contacts/anna/accept", by="bert")
    relay.request("DELETE", "/contacts/bert", by="anna")
    log = relay.lines.getvalue()
    for event in (b"contact.request", b"contact.accept", b"contact.remove"):
        assert log.count(event) == 1
    assert b"a secret" not in log


def test_removed_contact_receives_an_event(relay):
    relay.connect("anna", "bert")
    assert relay.request("DELETE", "/contacts/anna", by="bert").status_code == 200
    assert relay.request("GET", "/contacts", by="anna").json == []
    events = relay.request("GET", "/contacts/events", by="anna").json
    assert [event["event"] for event in events["events"]] == ["accepted", "removed"]
    rest = relay.request("GET", f"/contacts/events?after={events['after']}", by="anna").json
    assert rest == {"events": [], "after": events["after"], "ok": True}


def test_requests_are_limited_per_hour(relay):
    for number in range(10):
        assert ask(relay, "anna", f"n{number}").status_code == 404
    assert ask(relay, "anna", "bert").status_code == 429
    relay.clock.pass_seconds(3600)
    assert ask(relay, "anna", "bert").status_code == 201


def test_number_of_requests_that_wait_is_limited(relay, monkeypatch):
    monkeypatch.setattr("appliance.relay.writes.INCOMING_MAX", 1)
    relay.add("cleo")
    assert ask(relay, "anna", "bert").status_code == 201
    reply = ask(relay, "cleo", "bert")
    assert (reply.status_code, reply.json["code"]) == (429, "TOO_MANY_CONTACTS")


AGENTS = ("anna", "bert", "cleo")
EVENTS = {"request": 201, "accept": 200, "deny": 200, "remove": 200}


class ContactMachine(RuleBasedStateMachine):
    """Any agent does anything at any time; the relay follows the table of states."""

    def __init__(self):
        super().__init__()
        from tempfile import TemporaryDirectory

        self.folder = TemporaryDirectory()
        from pathlib import Path

        self.relay = RelayFixture(Path(self.folder.name) / "relay")
        self.relay.add(*AGENTS)
        self.states = {}

    @rule(
        agent=st.sampled_from(AGENTS),
        other=st.sampled_from(AGENTS),
        event=st.sampled_from([*EVENTS]),
    )
    def act(self, agent, other, event):
        self.relay.clock.pass_seconds(3600)  # limits are not tested here
        pair = frozenset((agent, other))
        state, asked_by = self.states.get(pair, (NOTHING, ""))
        if event == "request":
            status = ask(self.relay, agent, other).status_code
        elif event == "remove":
            status = self.relay.request("DELETE", f"/contacts/{other}", by=agent).status_code
        else:
            status = self.relay.request("POST", f"/contacts/{other}/{event}", by=agent).status_code
        if agent == other:
            assert status == (400 if event == "request" else 404)
            return
        own = state == PENDING and asked_by == agent
        allowed = event in CONTACT.events(state) and not (own and event in ("accept", "deny"))
        if allowed:
            after = CONTACT.after(state, event)
            self.states[pair] = (after, agent if event == "request" else asked_by)
            assert status == EVENTS[event]
        elif event == "accept" and state == ACTIVE:
            assert status == 200  # it changes nothing
        else:
            assert status in (400, 404, 409)

    @invariant()
    def both_sides_see_the_same(self):
        for pair, (state, asked_by) in self.states.items():
            for agent in pair:
                (other,) = pair - {agent}
                contacts = [row.name for row in self.listed(agent)]
                assert (other in contacts) == (state == ACTIVE)
                asking = [row.from_ for row in self.relay.relay.pending_contacts(agent)]
                assert (other in asking) == (state == PENDING and asked_by == other)

    def listed(self, agent):
        return [
            self.relay.relay.directory.agents[entry.agent]
            for entry in self.relay.relay.contacts(agent)
        ]

    def teardown(self):
        self.relay.close()
        self.folder.cleanup()


TestContactMachine = ContactMachine.TestCase
TestContactMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_list_of_agents_is_requested_at_once(relay):
    """As by the later client."""
    relay.add("cleo")
    body = {"to": ["bert", "cleo", "nobody", "anna"]}
    reply = relay.request("POST", "/contacts/request", body, by="anna")
    assert (reply.status_code, reply.json["ok"]) == (201, False)
    results = [(row["to"], row["ok"], row["status"]) for row in reply.json["results"]]
    assert results == [
        ("bert", True, 201), ("cleo", True, 201), ("nobody", False, 404), ("anna", False, 400),
    ]  # fmt: skip
    relay.add("dora")
    alone = relay.request("POST", "/contacts/request", {"to": ["dora"]}, by="anna")
    assert (alone.status_code, alone.json["ok"]) == (201, True)
    for name in ("bert", "cleo", "dora"):
        (row,) = relay.request("GET", "/contacts/pending", by=name).json
        assert row["from"] == "anna"


def test_list_counts_against_the_hourly_limit(relay):
    names = [f"x{number}" for number in range(10)]
    relay.request("POST", "/contacts/request", {"to": names}, by="anna")
    refused = relay.request("POST", "/contacts/request", {"to": ["bert"]}, by="anna").json
    assert refused["results"][0]["status"] == 429
    long = relay.request("POST", "/contacts/request", {"to": [*names, "bert"]}, by="anna")
    assert long.status_code == 400


def test_third_denial_blocks_the_requester(relay):
    def ask(by="anna", to="bert"):
        return relay.request("POST", "/contacts/request", {"to": to}, by=by)

    for _ in range(3):
        assert ask().status_code == 201
        assert relay.request("POST", "/contacts/anna/deny", by="bert").status_code == 200
    assert (ask().status_code, ask().json["code"]) == (403, "REQUESTER_BLOCKED")
    assert ask("bert", "anna").status_code == 201  # bert, who denied, has another mind
    assert relay.request("POST", "/contacts/bert/deny", by="anna").status_code == 200
    assert ask().status_code == 201

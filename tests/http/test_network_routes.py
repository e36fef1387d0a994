"""An appliance's agents through its routes, tools and remote client."""

import shutil
from functools import partial

import pytest

from appliance.integrations.mailbox_outbox import NetworkTarget
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.mailbox import wire
from appliance.mailbox.service import Mailbox, guarded_post
from appliance.mailbox.settings import NetworkSettings
from appliance.mailbox.tools import tools
from appliance.mailbox.verbs import NetworkVerbs
from appliance.network.safety import fingerprint
from appliance.sdk.network.folder import AgentConfig, AgentFolder, NoNetworkAgent
from appliance.sdk.network.peers import NotAContact
from appliance.sdk.network.pins import KeyChanged
from appliance.sdk.network.post import PostRules, post_envelope, tls_context
from appliance.sdk.network.relay_client import RelayUnreachable
from tests.http.test_mailbox import outgoing
from tests.support.http import Lines
from tests.support.network import MALLORY, show_other_key
from tests.support.relay import key
from tests.support.webhook_receiver import webhook_receiver
from tests.unit.web.test_webhook_caller import contexts_for

OWN = wire.OwnQuery()


@pytest.fixture
def network(network):
    network.agent("anna")
    return network


@pytest.fixture
def mailbox(network, tmp_path):
    """It keeps bert, a contact of anna."""
    folder = tmp_path / "agents"
    config = AgentConfig("bert", "https://relay.example", "https://bert.example.org/network/inbox")
    AgentFolder.create(folder / "bert", config, key("bert"))
    network.relay.add("bert")
    network.relay.connect("anna", "bert")
    settings = NetworkSettings(heartbeat_seconds=60, queue_max=7)
    mailbox = Mailbox(folder, settings, lambda *_: None, network.clock, Log(Lines()))
    mailbox.agents["bert"].poll()
    mailbox.agents["bert"]._post = network.post
    network.agents["anna"].poll()
    yield mailbox
    mailbox.close()


@pytest.fixture
def verbs(mailbox):
    return NetworkVerbs(mailbox)


def test_contact_is_listed_with_its_key(network, verbs):
    (agent,) = verbs.agents().agents
    assert (agent.name, agent.problem) == ("bert", None)
    listed = verbs.contacts(OWN)
    assert [(contact.agent, contact.online) for contact in listed.contacts] == [("anna", True)]
    shown = verbs.contact_key("anna", OWN)
    assert shown.safety_number == network.agents["anna"].safety_number("bert")
    verbs.confirm_key(wire.ConfirmKey("anna", shown.fingerprint))
    assert verbs.contact_key("anna", OWN).state == "verified"


def test_changed_key_is_only_accepted_by_its_fingerprint(network, mailbox, verbs):
    former = verbs.contact_key("anna", OWN).fingerprint
    show_other_key(network, "anna")
    mailbox.agents["bert"].poll()
    offered = fingerprint(MALLORY.public)
    for command in (wire.ConfirmKey("anna", former), wire.ConfirmKey("anna", offered),
                    wire.ConfirmKey("anna", former, accept=True)):  # fmt: skip
        with pytest.raises(KeyChanged):
            verbs.confirm_key(command)
    verbs.confirm_key(wire.ConfirmKey("anna", offered, accept=True))
    assert verbs.contact_key("anna", OWN).state == "new"


@pytest.mark.parametrize(("answer", "count"), [("accept", 2), ("deny", 1), ("block", 1)])
def test_request_is_listed_and_answered(network, mailbox, verbs, answer, count):
    network.relay.add("cleo")
    network.relay.request("POST", "/contacts/request", {"to": "bert", "greeting": "hi"}, by="cleo")
    mailbox.agents["bert"].poll()
    (request,) = verbs.requests(OWN).requests
    assert (request.agent, request.greeting, request.email) == ("cleo", "hi", "cleo@example.org")
    assert verbs.contact_key("cleo", OWN).state is None
    verbs.answer_request(wire.AnswerRequest("cleo", answer))
    assert verbs.requests(OWN).requests == []
    assert len(verbs.contacts(OWN).contacts) == count


def test_request_that_was_replaced_is_not_answered(network, mailbox, verbs):
    """The relay lists another request by this name than the one that a person has seen."""
    network.relay.add("cleo")
    for _ in range(2):
        body = {"to": "bert"}
        network.relay.request("POST", "/contacts/request", body, by="cleo")
        if not mailbox.agents["bert"].requests.waiting():
            mailbox.agents["bert"].poll()
            network.relay.request("POST", "/contacts/cleo/deny", by="bert")
            network.relay.clock.pass_seconds(1)
    with pytest.raises(wire.NoSuchRequest):
        verbs.answer_request(wire.AnswerRequest("cleo", "accept"))
    verbs.answer_request(wire.AnswerRequest("cleo", "accept"))


def test_agent_without_a_request_is_blocked_too(network, mailbox, verbs):
    network.relay.add("cleo")
    verbs.answer_request(wire.AnswerRequest("cleo", "block"))
    network.relay.request("POST", "/contacts/request", {"to": "bert"}, by="cleo")
    bert = mailbox.agents["bert"]
    bert._auto_approve = True
    bert.poll()
    assert (bert.pending_requests(), len(bert.contacts())) == ([], 1)


def test_contact_is_requested_and_removed(network, verbs):
    network.relay.add("cleo")
    verbs.request_contact(wire.RequestToAgent("cleo", "hi"))
    pending = network.relay.request("GET", "/contacts/pending", by="cleo").json
    assert [row["from"] for row in pending] == ["bert"]
    verbs.remove_contact(wire.RemoveContact("anna"))
    assert verbs.contacts(OWN) == wire.ContactList([], [])
    with pytest.raises(NotAContact):
        verbs.contact_key("anna", OWN)


@pytest.mark.parametrize(("action", "name"), [("invite", None), ("accept", "anna")])
def test_group_change_with_a_wrong_name_is_refused(verbs, action, name):
    with pytest.raises(Invalid):
        verbs.change_group(wire.ChangeGroup("7f9c24e8-3b12-4fef-91e0-56a2d5a1c001", action, name))


def test_malformed_groups_by_the_relay_are_refused(network, verbs):
    network.tamper["/groups"] = lambda _: b'[{"groupId": 1}]'
    with pytest.raises(RelayUnreachable):
        verbs.groups(OWN)


def test_group_changes_are_limited_to_the_newest(network, verbs):
    made = verbs.create_group(wire.MakeGroup("builders")).group_id
    verbs.change_group(wire.ChangeGroup(made, "invite", "anna"))
    query = wire.GroupChangesQuery(group=made, limit=1)
    assert [change.action for change in verbs.group_changes(query).changes] == ["invited"]


def test_lost_key_is_recovered_by_the_folders_new_key(network, mailbox, verbs):
    """Cancelling needs the key that is still registered."""
    bert, email = mailbox.agents["bert"], "bert@example.org"
    registered = bert.folder.key()
    bert.folder.next_key()
    bert.folder.promote_next()
    bert.relay.key = bert.folder.key()  # as a heartbeat does
    assert verbs.recover_key(wire.KeyRecovery(email)).status == "code-sent"
    begun = verbs.recover_key(wire.KeyRecovery(email, network.relay.codes.last()))
    assert (begun.status, begun.effective_at is None) == ("begun", False)
    bert.relay.key = registered
    verbs.change_key(wire.ChangeKey("cancel-recovery"))
    assert network.relay.rows("SELECT * FROM recoveries") == []


def test_unknown_own_agent_is_refused(verbs):
    with pytest.raises(NoNetworkAgent):
        verbs.contacts(wire.OwnQuery("cleo"))


def test_sends_by_the_outbox_have_reports(network, mailbox, verbs):
    network.offline.add("anna")
    target = NetworkTarget(mailbox, network.clock)
    assert target.waiting_max == 7
    for attempt in (1, 2):
        target.deliver(outgoing(network, "network:anna", attempt))
    (report,) = verbs.reports(wire.ReportsQuery(waiting=True)).reports
    assert (report.status, report.recipient, len(report.attempts)) == ("pending", "anna", 2)
    mailbox.agents["bert"].run_once()  # has nothing to send itself
    network.offline.clear()
    target.deliver(outgoing(network, "network:anna", 3))
    assert verbs.reports(wire.ReportsQuery(waiting=True)).reports == []
    (report,) = verbs.reports(wire.ReportsQuery(id=report.message_id)).reports
    assert (report.status, len(report.attempts)) == ("delivered", 3)
    assert report.attempts[-1].http_status == 200


def test_reports_of_the_outbox_are_bounded(network, mailbox, monkeypatch):
    monkeypatch.setattr("appliance.sdk.network.outgoing.REPORTS_MAX", 5)
    network.offline.add("anna")
    target = NetworkTarget(mailbox, network.clock)
    for number in range(10):
        target.deliver(outgoing(network, "network:anna", message_id=f"c{number}"))
    assert len(mailbox.agents["bert"].outgoing.reports(20)) == 6


def test_each_tool_calls_its_verb(network, mailbox, verbs):
    made = {tool.name: tool for tool in tools(verbs)}
    who = Principal("t", "t", frozenset({wire.READ}))
    assert made["network_contacts"].call(OWN, who) == verbs.contacts(OWN)
    assert {tool.scope for tool in made.values() if tool.audited} == {wire.WRITE}
    loose = {name for name, tool in made.items() if tool.audited != (tool.changes != "nothing")}
    assert loose == {"network_group_send"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("make", [guarded_post, lambda rules: partial(post_envelope, rules=rules)])
def test_report_has_the_time_for_the_tls_handshake(network, mailbox, tmp_path, monkeypatch, make):
    server, _ = contexts_for("localhost", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    tls_context.cache_clear()
    bert = mailbox.agents["bert"]
    without = bert.attempt("anna", {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001")
    assert (without.problem, without.tls_ms) == (None, None)
    with webhook_receiver(server) as receiver:
        post = make(PostRules(allow_loopback=True, allow_http=True))
        bert._post = lambda _, body: post(f"https://localhost:{receiver.port}/", body)
        sent = bert.attempt("anna", {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c002")
    tls_context.cache_clear()
    assert sent.problem is None
    assert isinstance(sent.tls_ms, int)

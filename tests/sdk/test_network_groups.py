"""Groups of network agents: membership, messages to all members, removal, and the relay's log."""

import json

import msgspec
import pytest

from appliance.network.envelope import MalformedEnvelope, SealedEnvelope
from appliance.network.group_log import GroupLogRefused
from appliance.relay import group_writes
from appliance.sdk.network import group_verbs
from appliance.sdk.network.groups import BadGroupId, GroupsNotCurrent, NotInGroup, SenderNotInGroup
from appliance.sdk.network.outgoing import NetworkQueueFull
from appliance.sdk.network.relay_client import RelayRefused, RelayUnreachable


class OneThread:
    """In place of the threads: the relay in these tests has one connection."""

    def __init__(self, _):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    map = staticmethod(map)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(group_verbs, "ThreadPoolExecutor", OneThread)


@pytest.fixture
def group(network):
    """The id of a group with anna (owner), bert and cleo, who are each other's contacts."""
    for name in ("anna", "bert", "cleo"):
        network.agent(name)
    for pair in (("anna", "bert"), ("anna", "cleo"), ("bert", "cleo")):
        network.connect(*pair)
    anna = network.agents["anna"]
    group_id = anna.create_group("builders")["groupId"]
    for name in ("bert", "cleo"):
        join(network, group_id, name)
    return group_id


def join(network, group_id, name):
    network.agents["anna"].invite_to_group(group_id, name, "Join us")
    network.agents[name].accept_group(group_id)


def statuses(reports):
    return {report.recipient: report.status for report in reports}


def handled(network, text):
    return sorted(name for name, message in network.handled if message.payload == {"text": text})


def test_message_to_a_group_reaches_each_member_once(network, group):
    anna = network.agents["anna"]
    reports = anna.send_to_group(group, {"text": "green"})
    assert statuses(reports) == {"bert": "delivered", "cleo": "delivered"}
    assert handled(network, "green") == ["bert", "cleo"]
    (shared,) = {message.message_id for _, message in network.handled}
    assert {report.shared_id for report in reports} == {shared}
    assert {(message.type, message.group_id) for _, message in network.handled} == {
        ("group", group)
    }
    for body in network.sent:  # again, as after a lost response
        network.agents[json.loads(body)["recipient"]].receive(body)
    assert handled(network, "green") == ["bert", "cleo"]
    assert b"green" not in b"".join(network.sent)


def test_each_member_gets_an_envelope_of_its_own(network, group):
    network.agents["anna"].send_to_group(group, {"text": "green"})
    first, second = map(json.loads, network.sent)
    assert first["payload"]["ciphertext"] != second["payload"]["ciphertext"]
    assert first["groupId"] == second["groupId"] == group


def test_message_waits_for_members_that_are_offline(network, group):
    network.offline.add("cleo")
    reports = network.agents["anna"].send_to_group(group, {"text": "later"})
    assert statuses(reports) == {"bert": "delivered", "cleo": "pending"}
    network.offline.clear()
    network.wait(10)
    assert handled(network, "later") == ["bert", "cleo"]


def test_member_removed_meanwhile_gets_nothing_that_waits_or_comes(network, group):
    anna = network.agents["anna"]
    network.offline.add("cleo")
    (waiting,) = (
        report
        for report in anna.send_to_group(group, {"text": "before"})
        if report.recipient == "cleo"
    )
    anna.remove_from_group(group, "cleo")
    network.offline.clear()
    network.wait(10)
    assert anna.report(waiting.message_id).status == "failed"
    assert statuses(anna.send_to_group(group, {"text": "after"})) == {"bert": "delivered"}
    network.wait(60, "bert")
    assert statuses(network.agents["bert"].send_to_group(group, {"text": "more"})) == {
        "anna": "delivered"
    }
    recipients = [json.loads(body)["recipient"] for body in network.sent]
    assert "cleo" not in recipients[1:]
    assert handled(network, "before") == ["bert"]


def test_removed_members_key_opens_no_envelope_sent_later(network, group):
    """Cleo listens to everything on the wire, with her own key and every key that she knows."""
    anna, cleo = network.agents["anna"], network.agents["cleo"]
    anna.remove_from_group(group, "cleo")
    network.sent.clear()
    anna.send_to_group(group, {"text": "secret"})
    assert network.sent
    for body in network.sent:
        fields = json.loads(body)
        for name in ("anna", "bert"):
            shared = cleo.peers._cipher(name, cleo.peers.contacts[name].public_key)
            for changed in (fields, fields | {"recipient": "cleo"}, fields | {"sender": name}):
                with pytest.raises(Exception, match=r"signature|decrypt"):
                    shared.open(changed, _envelope(changed))


def _envelope(fields):
    return msgspec.convert(fields, SealedEnvelope)


def test_removed_member_can_not_send_and_is_refused(network, group):
    anna, cleo = network.agents["anna"], network.agents["cleo"]
    cleo.send_to_group(group, {"text": "hello"})  # caches the members
    anna.remove_from_group(group, "cleo")
    bodies = cleo.send_to_group(group, {"text": "still cached"})
    assert statuses(bodies)["anna"] == "failed"  # anna has removed cleo, and reads again
    network.wait(61, "bert")
    with pytest.raises(NotInGroup):
        cleo.send_to_group(group, {"text": "more"})


def test_sender_outside_the_group_is_refused_for_good(network, group):
    network.agent("mona")
    network.connect("mona", "anna")
    mona, anna = network.agents["mona"], network.agents["anna"]
    network.wait(11)
    _, body = mona.peers.seal(
        "anna", {"text": "x"}, "11111111-1111-4111-8111-111111111111", "group", None, group
    )
    with pytest.raises(SenderNotInGroup):
        anna.receive(body)
    with pytest.raises(GroupsNotCurrent):  # unknown senders can't cause a request each time
        anna.receive(body)


def test_group_id_belongs_to_group_envelopes_only(network, group):
    anna, bert = network.agents["anna"], network.agents["bert"]
    message_id = "11111111-1111-4111-8111-111111111111"
    for kind, group_id in (("direct", group), ("group", None), ("group", "../contacts")):
        _, body = anna.peers.seal("bert", {"text": "x"}, message_id, kind, None, group_id)
        with pytest.raises(MalformedEnvelope):
            bert.receive(body)


def test_new_member_is_accepted_after_one_read(network, group):
    network.agent("dora")
    for name in ("anna", "bert"):
        network.connect("dora", name)
    bert = network.agents["bert"]
    bert.send_to_group(group, {"text": "x"})  # caches the members
    join(network, group, "dora")
    reports = network.agents["dora"].send_to_group(group, {"text": "hi"})
    assert statuses(reports) == {"anna": "delivered", "bert": "delivered", "cleo": "failed"}
    assert handled(network, "hi") == ["anna", "bert"]  # cleo is not dora's contact


def test_only_admins_send_if_the_owner_chose_so(network, group):
    anna, bert = network.agents["anna"], network.agents["bert"]
    quiet = anna.create_group("news", members_can_send=False)["groupId"]
    join(network, quiet, "bert")
    with pytest.raises(NotInGroup):
        bert.send_to_group(quiet, {"text": "x"})
    assert statuses(anna.send_to_group(quiet, {"text": "x"})) == {"bert": "delivered"}
    _, body = bert.peers.seal(
        "anna", {"text": "x"}, "11111111-1111-4111-8111-111111111111", "group", None, quiet
    )
    with pytest.raises(SenderNotInGroup):
        anna.receive(body)


def test_messages_wait_while_the_relay_can_not_confirm_members(network, group):
    anna = network.agents["anna"]
    network.offline.update(("bert", "cleo"))
    anna.send_to_group(group, {"text": "later"})
    network.relay_is_down = True
    network.offline.clear()
    network.wait(61)
    assert handled(network, "later") == []
    with pytest.raises(RelayUnreachable):
        anna.send_to_group(group, {"text": "now"})
    network.relay_is_down = False
    for _ in range(3):
        network.wait(61, "anna", "bert", "cleo")
    assert handled(network, "later") == ["bert", "cleo"]


def test_queue_for_groups_has_a_limit_of_its_own(network, group):
    anna = network.agents["anna"]
    network.offline.update(("bert", "cleo"))
    for _ in range(250):
        anna.outgoing.add_for_group(group, ["bert", "cleo"], {"text": "x"}, 0)
    with pytest.raises(NetworkQueueFull):
        anna.send_to_group(group, {"text": "x"})
    assert anna.send("bert", {"text": "direct"}).status == "pending"


def test_receipts_are_noted_for_each_member(network):
    for name in ("anna", "bert"):
        network.agent(name, receipts=True)
    network.connect("anna", "bert")
    anna = network.agents["anna"]
    group = anna.create_group("pair")["groupId"]
    join(network, group, "bert")
    (report,) = anna.send_to_group(group, {"text": "x"})
    network.wait(1)
    assert anna.report(report.message_id).receipt_ms is not None


def test_program_without_a_handler_keeps_the_group_id(network, group):
    network.agents["bert"].close()
    bert = network.open("bert", handle=False)
    network.agents["anna"].send_to_group(group, {"text": "kept"})
    assert [(row.group_id, row.payload) for row in bert.messages()] == [(group, {"text": "kept"})]


def test_invitations_and_changes_become_events(network, group):
    anna, bert = network.agents["anna"], network.agents["bert"]
    network.agent("dora")
    network.connect("dora", "anna")
    anna.invite_to_group(group, "dora", "Hi")
    network.agents["dora"].poll()
    (event,) = (event for own, event in network.events if event.kind == "group-invited"
                and own == "dora")  # fmt: skip
    assert (event.agent, event.details["groupId"]) == ("anna", group)
    assert network.agents["dora"].group_invitations()[0]["groupName"] == "builders"
    network.agents["dora"].decline_group(group)
    anna.transfer_group(group, "bert")
    bert.remove_from_group(group, "cleo")
    for name in ("anna", "cleo"):
        network.agents[name].poll()
    shown = [(event.agent, event.details["action"]) for own, event in network.events
             if own == "cleo" and event.kind == "group-changed"]  # fmt: skip
    assert shown == [
        ("dora", "invited"), ("dora", "declined"), ("bert", "ownership-transferred"),
        ("cleo", "removed"),
    ]  # fmt: skip
    assert cleo_sees_nothing_more(network, group)
    roles = {row["agent"]: row["role"] for row in anna.group_members(group)}
    assert roles == {"bert": "owner", "anna": "admin"}
    anna.leave_group(group)
    bert.delete_group(group)
    assert bert.list_groups() == []


def cleo_sees_nothing_more(network, group):
    before = len(network.events)
    network.agents["cleo"].poll()
    return not any(e.kind.startswith("group") for _, e in network.events[before:])


# -- a relay that lies about the log -------------------------------------------------------


def test_relay_that_shows_another_log_is_refused_until_trusted(network, group):
    anna, bert = network.agents["anna"], network.agents["bert"]
    bert.poll()
    network.relay.store.write(forge, group)
    anna.poll()
    bert.poll()
    kinds = [event.kind for own, event in network.events if own == "bert"]
    assert "group-log-refused" in kinds
    with pytest.raises(GroupLogRefused):
        bert.send_to_group(group, {"text": "x"})
    with pytest.raises(GroupLogRefused):
        bert.group_changes(group)
    bert.trust_group_log(group)
    assert statuses(bert.send_to_group(group, {"text": "x"}))["anna"] != "failed"


def forge(tx, group_id):
    """Let the last change be undone, as a relay from an older backup does, and make another."""
    tx.execute(
        "DELETE FROM group_changes WHERE group_id = ? AND number = (SELECT max(number) FROM"
        " group_changes WHERE group_id = ?)",
        (group_id, group_id),
    )
    group_writes._log(tx, group_id, "cleo", "left", "cleo")


def test_shortened_log_is_refused(network, group):
    bert = network.agents["bert"]
    bert.poll()
    network.relay.store.write(shorten, group)
    bert.poll()
    with pytest.raises(GroupLogRefused):
        bert.send_to_group(group, {"text": "x"})


def shorten(tx, group_id):
    tx.execute("DELETE FROM group_changes WHERE group_id = ? AND number > 2", (group_id,))


def test_relay_without_a_hash_chain_is_refused(network, group):
    bert = network.agents["bert"]
    path = f"/groups/{group}/changes?since=1970-01-01T00%3A00%3A00Z"
    network.tamper[path] = lambda _: b'[{"agent":"bert","action":"joined","by":null}]'
    with pytest.raises(GroupLogRefused):
        bert.group_changes(group)


def test_whole_log_is_verified_and_returned(network, group):
    changes = network.agents["bert"].group_changes(group)
    assert [(change.agent, change.action) for change in changes] == [
        ("anna", "joined"), ("bert", "invited"), ("bert", "joined"), ("cleo", "invited"),
        ("cleo", "joined"),
    ]  # fmt: skip


def test_bad_ids_and_refusals_are_typed(network, group):
    anna = network.agents["anna"]
    with pytest.raises(BadGroupId):
        anna.group_members("../contacts")
    with pytest.raises(RelayRefused) as refused:
        anna.leave_group(group)
    assert refused.value.details["code"] == "OWNER_STAYS"

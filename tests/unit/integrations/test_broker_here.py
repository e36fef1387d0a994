"""Inbox and outbox of the appliance that runs the broker, without a network."""

from types import SimpleNamespace

import pytest

from appliance.broker import wire
from appliance.integrations.inbox_broker import LocalBrokerClient, LocalMeshSubscriber
from appliance.integrations.outbox_broker import MeshSendPermission, OwnBroker
from appliance.kernel.errors import Invalid
from appliance.kernel.store_errors import StoreSuspended
from appliance.mesh.signing import rotation_text, sign
from appliance.outbox.target import Delivered, Outgoing, RetryLater
from tests.support.broker import BrokerFixture, item, key, seed
from tests.support.inbox import OWN, InboxFixture, OwnKeys
from tests.support.until import gevent_until


@pytest.fixture
def broker(tmp_path):
    fixture = BrokerFixture(tmp_path / "broker")
    fixture.registry.add_member("lab", wire.AddMember(OWN.public_hex, "us"))
    yield fixture
    fixture.close()


@pytest.fixture
def inbox(tmp_path):
    fixture = InboxFixture(tmp_path / "inbox")
    yield fixture
    fixture.close()


def subsystem(broker):
    return SimpleNamespace(broker=broker.service, registry=broker.registry)


def outgoing(id_, **more):
    sent = item(id_, mesh="lab", topic="alerts", **more)
    digest = bytes.fromhex(sent["request_fingerprint"])
    return Outgoing("lab", id_, digest, "topic", "alerts", None, "next", None, "hello", 1, 0, "")


def test_meshes_are_received_from_while_our_key_is_a_member(broker, inbox):
    subscriber = LocalMeshSubscriber(subsystem(broker), inbox.service, inbox.log)
    assert subscriber.run_once(0) == {"links": 1}
    assert inbox.service.links["lab"].state == "local"
    broker.send("m1", to=OWN.public_hex)
    broker.deliver()
    gevent_until(lambda: inbox.rows() == ["m1"])
    broker.registry.revoke_member("lab", "us")
    assert subscriber.run_once(0) == {"links": 0}
    assert "lab" not in inbox.service.broker_clients
    assert inbox.events[-1].name == "daemon_disconnect"


def test_client_of_our_own_broker_changes_only_our_member(broker):
    client = LocalBrokerClient(subsystem(broker), "lab", OWN)
    changed = [client.subscribe("alerts", wanted) for wanted in (True, True, False)]
    assert changed == [True, False, True]
    with pytest.raises(Invalid, match="not valid for a member"):
        client.rename("two words")
    client.rename("ours")
    names = {member.name for member in client.members("", 9).members}
    assert names == {"anna", "bert", "cleo", "ours"}


def test_send_to_our_own_broker_is_repeated_without_a_second_message(broker):
    target = OwnBroker(broker.service, OwnKeys())
    first, again = (target.deliver(outgoing("s1")) for _ in range(2))
    assert isinstance(first, Delivered)
    assert (again.duplicate, again.broker_message_id) == (True, first.broker_message_id)
    assert target.unknown("lab", ["s1", "s2"]) == ["s2"]
    assert (target.serves("lab"), target.serves("other")) == (True, False)
    broker.registry.revoke_member("lab", "us")
    refused = target.deliver(outgoing("s2"))
    assert isinstance(refused, RetryLater)
    assert refused.revoked_key == OWN.public_hex
    assert target.unknown("lab", ["s1"]) is None
    suspended = OwnBroker(broker.service, OwnKeys(), StoreSuspended("broker", Invalid("damaged")))
    assert suspended.serves("other")
    with pytest.raises(StoreSuspended):
        suspended.deliver(outgoing("s3"))


def test_sends_are_refused_only_if_our_present_key_is_revoked(broker, inbox):
    permission = MeshSendPermission(inbox.service, broker.service, OwnKeys(), ["far"])
    assert [permission.refusal(mesh) for mesh in ("lab", "far", "unknown")] == [None] * 3
    permission.on_revoked("far", key("former"))
    permission.on_revoked("lab", OWN.public_hex)
    assert inbox.service.revoked == {}
    permission.on_revoked("far", OWN.public_hex)
    assert permission.refusal("far").details["member"] == OWN.public_hex
    broker.registry.revoke_member("lab", "us")
    assert permission.refusal("lab").details == {"mesh": "lab", "member": OWN.public_hex}
    assert MeshSendPermission(None, None, OwnKeys(), ["far"]).refusal("lab") is None


def test_rotated_key_is_not_a_revoked_one(broker):
    keys = SimpleNamespace(in_mesh=lambda _: SimpleNamespace(public_hex=key("anna")))
    permission = MeshSendPermission(None, broker.service, keys, ())
    proof = sign(seed("new"), rotation_text("lab", key("anna"), key("new")))
    broker.registry.rotate_member("lab", "anna", wire.RotateMember(key("new"), proof))
    assert permission.refusal("lab") is None

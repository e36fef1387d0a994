"""The broker's log: which facts make which rows, and none without a change."""

import pytest

from appliance.broker import log_writes, wire
from appliance.kernel.clock import DAY_MS
from tests.support.broker import key

COLUMNS = "name, client_message_id, recipient, attempt, error"


def logged(broker, after=0):
    names = {key(name): name for name in ("anna", "bert", "cleo")}
    rows = broker.rows(f"SELECT {COLUMNS} FROM log WHERE event_id > ? ORDER BY event_id", after)
    return [(name, id_, names.get(who, who), *rest) for name, id_, who, *rest in rows]


def test_message_to_a_topic_is_logged_once_and_each_delivery_by_itself(broker):
    _, receipt = broker.send("m1")
    assert broker.send("m1")[0] == 200
    assert logged(broker) == [("message.accepted", "m1", None, None, None)]
    broker.connect("bert").receive()
    assert logged(broker, 1) == [
        ("delivery.sent", "m1", "bert", 1, None),
        ("delivery.acked", "m1", "bert", 1, None),
    ]
    facts = broker.rows(
        "SELECT DISTINCT at_ms, mesh_id, message_id, destination_kind, destination_ref,"
        " sender_pubkey, accepted_ms FROM log"
    )
    mesh = broker.service.directory.by_slug["lab"].id
    now, id_ = broker.clock.now_ms(), receipt["broker_message_id"]
    assert facts == [(now, mesh, id_, "topic", "alerts", key("anna"), now)]


@pytest.mark.parametrize(
    ("more", "kind", "recipient"),
    [({"to": "bert"}, "dm", "bert"), ({"queue": "jobs"}, "queue", "queue:jobs")],
)
def test_destination_and_recipient(broker, more, kind, recipient):
    broker.send("m1", **more)
    broker.connect("bert").receive()
    assert {row[2] for row in logged(broker)} == {None, recipient}
    assert broker.rows("SELECT DISTINCT destination_kind FROM log") == [(kind,)]


def test_delivery_that_is_not_acked_failed_and_is_sent_again(broker):
    broker.send("m1", to="bert")
    box = broker.connect("bert", lambda _: None)
    broker.deliver()
    broker.clock.pass_seconds(31)
    broker.lease_expiry.run_once(broker.clock.now_ms())
    broker.deliver()
    broker.service.disconnect(box.connection._connection)
    assert logged(broker, 1) == [
        ("delivery.sent", "m1", "bert", 1, None),
        ("delivery.failed", "m1", "bert", 1, log_writes.LEASE_EXPIRED),
        ("delivery.sent", "m1", "bert", 2, None),
        ("delivery.failed", "m1", "bert", 2, log_writes.RELEASED),
    ]


def test_leases_end_at_a_restart(broker):
    broker.send("m1", to="bert")
    broker.connect("bert", lambda _: None)
    broker.deliver()
    broker.service.open()
    broker.service.open()
    assert logged(broker, 2) == [("delivery.failed", "m1", "bert", 1, log_writes.RESTARTED)]


def test_delivery_ends_when_its_recipient_is_removed(broker):
    broker.send("m1")
    broker.registry.revoke_member("lab", "bert")
    assert logged(broker, 1) == [
        ("delivery.dead", "m1", "bert", None, log_writes.RECIPIENT_REMOVED)
    ]


def test_delivery_ends_when_its_message_is_removed(broker):
    broker.registry.change_mesh("lab", wire.ChangeMesh("retention_scoped", 14, 7))
    broker.send("m1", to="bert")
    broker.clock.pass_seconds(8 * DAY_MS / 1000)
    broker.pruner.prune()
    assert logged(broker, 1) == [("delivery.dead", "m1", "bert", None, log_writes.MESSAGE_REMOVED)]

"""Redrive, drop and prune: they lose no accepted send and release no id."""

import pytest

from appliance.kernel.errors import Invalid
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import wire
from tests.support.outbox import dead, redrive


def test_redriven_send_differs_only_in_its_id(outbox):
    """An earlier implementation lost destination, mesh and meta, and sent to everybody."""
    dead(outbox)
    (row,) = redrive(outbox)
    old, new = outbox.service.inspect("k1"), outbox.service.inspect(row.new_id)
    assert (old.send.status, old.send.aborted_by) == ("aborted", "operator")
    assert old.send.aborted_at
    assert old.send.superseded_by == row.new_id == new.send.id
    assert old.message == "hello", "the old row stays as it was"
    assert new.send.client_message_id == row.new_client_message_id != "k1"
    for name in ("fingerprint", "mesh", "target", "to", "priority", "reply_to_id"):
        assert getattr(new.send, name) == getattr(old.send, name), name
    assert (new.message, new.meta) == ("hello", {"a": 1})
    assert (new.send.status, new.send.attempts, new.send.last_error) == ("pending", 0, None)
    outbox.round()
    sent = outbox.broker.rows["ops", row.new_client_message_id]
    assert (sent["destination_ref"], sent["reply_to_id"], sent["meta"]) == (
        "alerts", "msg_1", {"a": 1},
    )  # fmt: skip


def test_patched_payload_changes_the_fingerprint(outbox):
    dead(outbox)
    (row,) = redrive(outbox, patch=wire.Patch(message="better"))
    new = outbox.service.inspect(row.new_id)
    digest = fingerprint(
        "topic", "alerts", b"better", reply_to_id="msg_1", priority="low", meta={"a": 1}
    )
    assert (new.message, new.meta, new.send.fingerprint) == ("better", {"a": 1}, digest.hex())
    outbox.round()
    assert outbox.row(row.new_id).status == "done", "the broker computes the same"


@pytest.mark.parametrize("meta", [None, {}, {"b": 2}])
def test_meta_can_be_patched_or_removed_alone(outbox, meta):
    dead(outbox)
    (row,) = redrive(outbox, patch=wire.Patch(meta=meta))
    new = outbox.service.inspect(row.new_id)
    assert (new.message, new.meta) == ("hello", meta or None)
    outbox.round()
    assert outbox.row(row.new_id).status == "done"


def test_used_id_is_refused_as_new_id(outbox):
    dead(outbox)
    for used in ("k1", "k2"):
        outbox.send(key="k2")
        with pytest.raises(wire.IdTaken):
            redrive(outbox, new_client_id=used)
    assert outbox.statuses() == {"k1": "dead", "k2": "pending"}
    (row,) = redrive(outbox, new_client_id="k3")
    assert row.new_client_message_id == "k3"
    with pytest.raises(wire.IdTaken):
        redrive(outbox, "k2", new_client_id="k1")


@pytest.mark.parametrize("status", ["inflight", "done", "aborted"])
def test_inflight_and_delivered_sends_can_not_be_redriven(outbox, status):
    outbox.send(key="k1")
    outbox.set("k1", status)
    with pytest.raises(wire.WrongState):
        redrive(outbox)
    assert outbox.statuses() == {"k1": status}


def test_send_claimed_before_the_redrive_commits_is_refused(outbox):
    """The transaction checks the state again that was read before."""
    outbox.send(key="k1")
    read = outbox.store.read

    def read_then_claim(function, *args):
        result = read(function, *args)
        outbox.set("k1", "inflight")
        return result

    outbox.store.read = read_then_claim
    with pytest.raises(wire.WrongState):
        redrive(outbox)
    assert outbox.statuses() == {"k1": "inflight"}


def test_redrive_by_filter_takes_all_matching_sends(outbox):
    dead(outbox, "a")
    dead(outbox, "b", to="#other", mesh="ops")
    dead(outbox, "c")
    outbox.set("c", "dead", last_error="413: too large")
    outbox.send(key="d", mesh="ops")
    filters = wire.Redrive(to="#alerts", error_contains="no such topic", auto=True)
    result = outbox.admin.redrive(filters)
    assert [row.client_message_id for row in result.redriven] == ["a"]
    result = outbox.admin.redrive(wire.Redrive(mesh="ops", auto=True))
    assert [row.client_message_id for row in result.redriven] == ["b", "c"]
    assert outbox.row("d").status == "pending", "only dead letters, unless `pending` is requested"
    result = outbox.admin.redrive(wire.Redrive(status="pending", auto=True))
    assert len(result.redriven) == 4


def test_redrive_by_filter_obeys_limit_and_age(outbox):
    for number in range(5):
        outbox.clock.pass_seconds(10)
        dead(outbox, f"k{number}")
    old = wire.Redrive(older_than_seconds=25, auto=True, dry_run=True)
    result = outbox.admin.redrive(old).redriven
    assert [row.client_message_id for row in result] == ["k0", "k1"]
    result = outbox.admin.redrive(wire.Redrive(status="dead", auto=True, limit=3))
    assert [row.client_message_id for row in result.redriven] == ["k0", "k1", "k2"]
    assert result.more
    assert not outbox.admin.redrive(wire.Redrive(status="dead", auto=True)).more


@pytest.mark.parametrize(
    "command",
    [
        wire.Redrive(id="k1"),
        wire.Redrive(id="k1", auto=True, new_client_id="k2"),
        wire.Redrive(auto=True),
        wire.Redrive(id="k1", status="dead", auto=True),
        wire.Redrive(status="dead", new_client_id="k2"),
    ],
)
def test_ambiguous_redrive_is_refused(outbox, command):
    dead(outbox)
    with pytest.raises(Invalid):
        outbox.admin.redrive(command)
    assert outbox.statuses() == {"k1": "dead"}


def test_redrive_without_payload_needs_a_new_one(outbox):
    dead(outbox)
    outbox.set("k1", "dead", payload=b"", payload_dropped_at=1)
    with pytest.raises(wire.PayloadGone):
        redrive(outbox)
    (row,) = redrive(outbox, patch=wire.Patch(message="again"))
    assert outbox.service.inspect(row.new_id).message == "again"


@pytest.mark.parametrize("status", ["pending", "dead", "done", "aborted"])
def test_a_dropped_send_keeps_its_id_and_loses_its_payload(outbox, status):
    outbox.send("a secret", key="k1", meta={"b": 1})
    outbox.set("k1", status)
    dropped = outbox.admin.drop(wire.Drop("k1")).send
    assert dropped.status == ("done" if status == "done" else "aborted")
    result = outbox.service.inspect("k1")
    assert (result.message, result.meta, result.send.payload_bytes) == (None, None, 0)
    with pytest.raises(wire.IdReused):
        outbox.send("other", key="k1")
    outbox.round()
    assert outbox.broker.received_ids == []


def test_prune_keeps_payloads_of_open_sends(outbox):
    for status in ("pending", "inflight", "done", "dead", "aborted"):
        outbox.send(key=status)
        outbox.set(status, status)
    assert outbox.admin.prune(wire.Prune(confirm=True)).pruned == 2
    kept = dict(outbox.rows("SELECT client_message_id, payload != x'' FROM outbox"))
    assert kept == {"pending": 1, "inflight": 1, "done": 0, "dead": 1, "aborted": 0}
    assert outbox.admin.prune(wire.Prune(confirm=True, dead=True)).pruned == 1
    assert outbox.row("dead").status == "aborted"
    assert outbox.admin.prune(wire.Prune(confirm=True, dead=True)).pruned == 0

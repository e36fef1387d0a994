"""Requeue, drop, prune, list, inspect, export: nothing is lost by them, and no id released."""

from itertools import pairwise

import msgspec
import pytest

from appliance.kernel.errors import ApplianceError, Invalid, Unavailable
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import wire

EVERYTHING = {
    "to": "#alerts",
    "mesh": "ops",
    "priority": "low",
    "meta": {"a": 1},
    "reply_to_id": "msg_1",
}


def requeue(house, any_id="k1", **more):
    if not more.keys() & {"auto", "new_client_id"}:
        more["auto"] = True
    return house.operator.requeue(wire.Requeue(id=any_id, **more), "ann").requeued


def dead(house, key="k1", message="hello", **more):
    house.send(message, key=key, **(more or EVERYTHING))
    house.set(key, "dead", last_error="404: no such topic")


# -- requeue -----------------------------------------------------------------------------


def test_a_requeued_send_is_the_same_but_for_its_id(house):
    """An earlier implementation lost destination, mesh and meta, and sent to everybody."""
    dead(house)
    (one,) = requeue(house)
    old, new = house.outbox.inspect("k1"), house.outbox.inspect(one.new_id)
    assert (old.send.status, old.send.aborted_by) == ("aborted", "operator")
    assert old.send.aborted_at
    assert old.send.superseded_by == one.new_id == new.send.id
    assert old.message == "hello", "the old row stays as it was"
    assert new.send.client_message_id == one.new_client_message_id != "k1"
    for name in ("fingerprint", "mesh", "target", "to", "priority", "reply_to_id"):
        assert getattr(new.send, name) == getattr(old.send, name), name
    assert (new.message, new.meta) == ("hello", {"a": 1})
    assert (new.send.status, new.send.attempts, new.send.last_error) == ("pending", 0, None)
    house.round()
    sent = house.ledger.rows["ops", one.new_client_message_id]
    assert (sent["destination_ref"], sent["reply_to_id"], sent["meta"]) == (
        "alerts", "msg_1", {"a": 1},
    )  # fmt: skip


def test_a_patched_payload_has_a_fingerprint_of_its_own(house):
    dead(house)
    (one,) = requeue(house, patch=wire.Patch(message="better"))
    new = house.outbox.inspect(one.new_id)
    digest = fingerprint(
        "topic", "alerts", b"better", reply_to_id="msg_1", priority="low", meta={"a": 1}
    )
    assert (new.message, new.meta, new.send.fingerprint) == ("better", {"a": 1}, digest.hex())
    house.round()
    assert house.row(one.new_id).status == "done", "the broker computes the same"


@pytest.mark.parametrize("meta", [None, {}, {"b": 2}])
def test_meta_can_be_patched_alone_and_taken_away(house, meta):
    dead(house)
    (one,) = requeue(house, patch=wire.Patch(meta=meta))
    new = house.outbox.inspect(one.new_id)
    assert (new.message, new.meta) == ("hello", meta or None)
    house.round()
    assert house.row(one.new_id).status == "done"


def test_a_patch_has_the_limits_of_a_send(house):
    dead(house)
    with pytest.raises(wire.MessageTooLarge):
        requeue(house, patch=wire.Patch(message="x" * 70_000))
    assert house.statuses() == {"k1": "dead"}


def test_the_new_id_may_be_given_but_never_one_that_was_used(house):
    dead(house)
    for used in ("k1", "k2"):
        house.send(key="k2")
        with pytest.raises(wire.IdTaken):
            requeue(house, new_client_id=used)
    assert house.statuses() == {"k1": "dead", "k2": "pending"}
    (one,) = requeue(house, new_client_id="k3")
    assert one.new_client_message_id == "k3"
    with pytest.raises(wire.IdTaken):
        requeue(house, "k2", new_client_id="k1")


@pytest.mark.parametrize("status", ["inflight", "done", "aborted"])
def test_what_is_on_its_way_or_has_ended_well_can_not_be_requeued(house, status):
    house.send(key="k1")
    house.set("k1", status)
    with pytest.raises(wire.WrongState):
        requeue(house)
    assert house.statuses() == {"k1": status}


def test_a_send_that_was_claimed_meanwhile_is_refused_in_the_transaction(house):
    """What the operator saw is looked at again where it is changed."""
    house.send(key="k1")
    read = house.store.read

    def read_then_claim(function, *args):
        found = read(function, *args)
        house.set("k1", "inflight")
        return found

    house.store.read = read_then_claim
    with pytest.raises(wire.WrongState):
        requeue(house)
    assert house.statuses() == {"k1": "inflight"}


def test_a_requeue_that_fails_half_way_changes_nothing(house, faults):
    for key in ("a", "b", "c"):
        dead(house, key)
    faults.before = OSError("disk")
    with pytest.raises(Unavailable):
        house.operator.requeue(wire.Requeue(status="dead", auto=True), "ann")
    faults.before = None
    assert house.statuses() == {"a": "dead", "b": "dead", "c": "dead"}


def test_requeued_again_and_again_it_is_one_chain(house):
    dead(house)
    ids = ["k1"]
    for _ in range(3):
        (one,) = requeue(house, ids[-1])
        house.set(one.new_client_message_id, "dead")
        ids.append(one.new_client_message_id)
    for key in ids:
        chain = house.outbox.inspect(key).chain
        assert [one.client_message_id for one in chain] == ids
        assert [one.status for one in chain] == ["aborted"] * 3 + ["dead"]


LONG = 1200  # requeues of one send


@pytest.fixture
def long_chain(house):
    """The keys of a send that was requeued `LONG` times; each row is as large as it may be."""
    keys = [f"k{number:04}" + "x" * 250 for number in range(LONG)]
    for start in range(0, LONG, 400):
        for key in keys[start : start + 400]:
            house.send(key=key, mesh="ops", to="#" + "t" * 200, reply_to_id="r" * 255)
    ids = dict(house.rows("SELECT client_message_id, id FROM outbox"))

    def link(tx):
        tx.execute("UPDATE outbox SET last_error = ?", ("\x01" * 200,))
        for before, after in pairwise(keys):
            tx.execute(
                "UPDATE outbox SET status = 'aborted', aborted_at = 1, superseded_by = ?"
                " WHERE id = ?",
                (ids[after], ids[before]),
            )

    house.store.write(link)
    return keys


@pytest.mark.parametrize("place", [0, LONG // 2, LONG - 1])
def test_a_chain_is_limited_in_bytes_and_continues_on_the_next_page(house, long_chain, place):
    found, after, pages = [], None, 0
    while True:
        page = house.outbox.inspect(long_chain[place], after, limit=10_000)
        assert len(msgspec.json.encode(page)) <= house.store.settings.page_bytes_max
        assert page.send.client_message_id == long_chain[place]
        found += [one.client_message_id for one in page.chain]
        after, pages = page.next, pages + 1
        assert page.has_more == (after is not None)
        if not page.has_more:
            break
    assert found == long_chain
    assert pages > 2


def test_a_chain_has_a_limit_of_rows(house, long_chain):
    page = house.outbox.inspect(long_chain[3], limit=2)
    assert [one.client_message_id for one in page.chain] == long_chain[:2]
    page = house.outbox.inspect(long_chain[3], page.next, limit=2)
    assert [one.client_message_id for one in page.chain] == long_chain[2:4]
    assert page.has_more


def test_rows_of_a_damaged_file_that_name_each_other_in_a_circle_end_a_chain(house):
    dead(house, "k1")
    dead(house, "k2")
    for one, other in (("k1", "k2"), ("k2", "k1")):
        house.set(one, "aborted", superseded_by=house.outbox.inspect(other).send.id)
    page = house.outbox.inspect("k1")
    assert [one.client_message_id for one in page.chain] == ["k1", "k2"]
    assert not page.has_more


def test_a_list_of_long_rows_is_limited_in_bytes(house, long_chain):
    page = house.outbox.list_sends(wire.ListQuery(limit=10_000))
    assert len(msgspec.json.encode(page)) <= house.store.settings.page_bytes_max
    assert page.next is not None
    assert long_chain


def test_by_filter_all_that_fit_are_requeued_in_one_go(house):
    dead(house, "a")
    dead(house, "b", to="#other", mesh="ops")
    dead(house, "c")
    house.set("c", "dead", last_error="413: too large")
    house.send(key="d", mesh="ops")
    filters = wire.Requeue(to="#alerts", error_contains="no such topic", auto=True)
    found = house.operator.requeue(filters, "ann")
    assert [one.client_message_id for one in found.requeued] == ["a"]
    found = house.operator.requeue(wire.Requeue(mesh="ops", auto=True), "ann")
    assert [one.client_message_id for one in found.requeued] == ["b", "c"]
    assert house.row("d").status == "pending", "only dead ones, unless pending is said"
    found = house.operator.requeue(wire.Requeue(status="pending", auto=True), "ann")
    assert len(found.requeued) == 4


def test_the_filter_has_a_limit_and_an_age(house):
    for number in range(5):
        house.clock.pass_seconds(10)
        dead(house, f"k{number}")
    old = wire.Requeue(older_than_seconds=25, auto=True, dry_run=True)
    found = house.operator.requeue(old, "ann").requeued
    assert [one.client_message_id for one in found] == ["k0", "k1"]
    result = house.operator.requeue(wire.Requeue(status="dead", auto=True, limit=3), "ann")
    assert [one.client_message_id for one in result.requeued] == ["k0", "k1", "k2"]
    assert result.more
    assert not house.operator.requeue(wire.Requeue(status="dead", auto=True), "ann").more


def test_sends_without_a_payload_are_passed_over_by_a_filter(house):
    for key in ("k0", "k1", "k2"):
        dead(house, key)
    house.set("k0", "dead", payload=b"", payload_dropped_at=1)
    command = wire.Requeue(status="dead", auto=True, limit=2)
    found = house.operator.requeue(command, "ann").requeued
    assert [one.client_message_id for one in found] == ["k1", "k2"]


def test_a_dry_run_tells_and_changes_nothing(house):
    dead(house)
    before = house.rows("SELECT * FROM outbox")
    found = house.operator.requeue(wire.Requeue(status="dead", auto=True, dry_run=True), "ann")
    assert found.dry_run
    assert [(one.client_message_id, one.new_id) for one in found.requeued] == [("k1", None)]
    assert house.rows("SELECT * FROM outbox") == before


@pytest.mark.parametrize(
    "command",
    [
        wire.Requeue(id="k1"),
        wire.Requeue(id="k1", auto=True, new_client_id="k2"),
        wire.Requeue(auto=True),
        wire.Requeue(id="k1", status="dead", auto=True),
        wire.Requeue(status="dead", new_client_id="k2"),
    ],
)
def test_half_or_double_orders_are_refused(house, command):
    dead(house)
    with pytest.raises(Invalid):
        house.operator.requeue(command, "ann")
    assert house.statuses() == {"k1": "dead"}


def test_a_dropped_payload_can_not_be_sent_again_without_a_new_one(house):
    dead(house)
    house.set("k1", "dead", payload=b"", payload_dropped_at=1)
    with pytest.raises(wire.PayloadGone):
        requeue(house)
    (one,) = requeue(house, patch=wire.Patch(message="again"))
    assert house.outbox.inspect(one.new_id).message == "again"


# -- drop and prune ----------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "dead", "done", "aborted"])
def test_a_dropped_send_keeps_its_id_and_loses_its_payload(house, status):
    house.send("a secret", key="k1", meta={"b": 1})
    house.set("k1", status)
    dropped = house.operator.drop("k1", "ann").send
    assert dropped.status == ("done" if status == "done" else "aborted")
    found = house.outbox.inspect("k1")
    assert (found.message, found.meta, found.send.payload_bytes) == (None, None, 0)
    with pytest.raises(wire.IdReused):
        house.send("other", key="k1")
    house.round()
    assert house.ledger.asked == []


def test_what_is_on_its_way_can_not_be_dropped(house):
    house.send(key="k1")
    house.set("k1", "inflight")
    with pytest.raises(wire.WrongState):
        house.operator.drop("k1", "ann")
    assert house.outbox.inspect("k1").message == "hello"


def test_pruning_wants_to_be_meant(house):
    with pytest.raises(Invalid):
        house.operator.prune(wire.Prune(), "ann")


def test_pruning_leaves_what_may_still_be_sent(house):
    for status in ("pending", "inflight", "done", "dead", "aborted"):
        house.send(key=status)
        house.set(status, status)
    assert house.operator.prune(wire.Prune(confirm=True), "ann").pruned == 2
    kept = dict(house.rows("SELECT client_message_id, payload != x'' FROM outbox"))
    assert kept == {"pending": 1, "inflight": 1, "done": 0, "dead": 1, "aborted": 0}
    assert house.operator.prune(wire.Prune(confirm=True, dead=True), "ann").pruned == 1
    assert house.row("dead").status == "aborted"
    assert house.operator.prune(wire.Prune(confirm=True, dead=True), "ann").pruned == 0


def test_pruning_goes_piece_by_piece_and_minds_the_age(new_house):
    house = new_house(sweep_rows_max=2)
    for number in range(5):
        house.send(key=f"k{number}")
        house.round()
        house.clock.pass_seconds(10)
    answers = []
    while not answers or answers[-1].more:
        answers.append(house.operator.prune(wire.Prune(confirm=True, older_than_seconds=15), "ann"))
    assert sum(one.pruned for one in answers) == 4
    assert house.row("k4").payload_kept


# -- looking -----------------------------------------------------------------------------


def test_a_list_is_paged_without_gaps_or_repetitions(house):
    house.outbox.send_many([wire.Send("#a", str(number)) for number in range(25)])
    seen, query = [], wire.ListQuery(limit=7)
    while query is not None:
        page = house.outbox.list_sends(query)
        seen += [one.id for one in page.sends]
        query = None if page.next is None else wire.ListQuery(limit=7, before=page.next)
    assert len(seen) == 25
    assert seen == sorted(set(seen), reverse=True)


def test_a_list_is_filtered_by_status_mesh_and_destination(house):
    dead(house, "a")
    house.send(key="b", to="#alerts", mesh="ops")
    house.send(key="c")

    def ids(**more):
        return [one.client_message_id for one in house.outbox.list_sends(
            wire.ListQuery(**more)).sends]  # fmt: skip

    assert ids(failed=True) == ids(status="dead") == ["a"]
    assert ids(mesh="ops") == ["b", "a"]
    assert ids(to="#alerts", status="pending") == ["c", "b"]
    assert ids(limit=10_000) == ["c", "b", "a"]


def test_an_export_holds_everything_oldest_first(house):
    house.outbox.send_many([wire.Send("#a", str(number)) for number in range(5)])
    first = house.outbox.export(wire.ExportQuery(limit=3))
    rest = house.outbox.export(wire.ExportQuery(limit=3, after=first.next))
    assert [one.message for one in first.sends + rest.sends] == ["0", "1", "2", "3", "4"]
    assert rest.next is None


def test_an_export_of_large_sends_is_limited_in_bytes_and_goes_on(house):
    texts = [f"{number:02}" + "x" * 60_000 for number in range(40)]
    house.outbox.send_many([wire.Send("#a", text) for text in texts])
    seen, after, pages = [], None, 0
    while True:
        page = house.outbox.export(wire.ExportQuery(limit=1000, after=after))
        assert len(msgspec.json.encode(page)) <= 1 << 20
        seen += [send.message for send in page.sends]
        after, pages = page.next, pages + 1
        if after is None:
            break
    assert seen == texts
    assert pages > 2


@pytest.mark.parametrize("any_id", ["nothing", "out_01", ""])
def test_what_is_not_there_is_said_so(house, any_id):
    with pytest.raises(ApplianceError) as caught:
        house.outbox.inspect(any_id)
    assert caught.value.kind == "missing"


def test_the_state_counts_what_waits(house):
    for key in ("a", "b"):
        house.send(key=key)
    dead(house, "c")
    house.clock.pass_seconds(90)
    state = house.outbox.state()
    assert state.depth == {"pending": 2, "dead": 1, "aborted": 0, "inflight": 0}
    assert (state.level, state.oldest_pending_seconds) == ("normal", 90.0)
    assert state.max_age_hours == {"default": 144}

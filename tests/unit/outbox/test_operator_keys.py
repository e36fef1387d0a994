"""An operator's verbs under an Idempotency-Key, and sends looked up by their destination."""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
import pytest

from appliance.kernel.errors import KeyReused
from appliance.outbox import listings, wire
from appliance.outbox.columns import Row

FAILED = wire.Requeue(status="dead", auto=True)


def dead(house, *keys):
    for key in keys:
        house.send(key=key)
        house.set(key, "dead")


def answer(house, verb, command, key="k", by="operator"):
    reply = house.operator.answer(verb, command, by, key)
    return msgspec.json.decode(reply.body), reply.replayed


def test_a_requeue_that_is_repeated_requeues_once_and_says_the_same(house):
    dead(house, "a", "b")
    first, replayed = answer(house, "requeue", FAILED)
    assert (len(first["requeued"]), replayed) == (2, False)
    dead(house, "c")  # it would fit the filter too
    house.reopen()
    assert answer(house, "requeue", FAILED) == (first, True)
    assert house.statuses()["c"] == "dead"
    assert len(house.statuses()) == 5
    assert len(answer(house, "requeue", FAILED, "another")[0]["requeued"]) == 1
    # Another's key is another key.
    assert answer(house, "requeue", FAILED, by="else")[0]["requeued"] == []


def test_two_at_once_are_one(house):
    """The second has chosen its sends before the first was written."""
    dead(house, "a")
    write = house.store.write
    first = []

    def racing(*args):
        if not first:
            first.append(None)
            first.append(answer(house, "requeue", FAILED)[0])
        return write(*args)

    house.store.write = racing
    told, replayed = answer(house, "requeue", FAILED)
    assert (told, replayed) == (first[1], True)
    assert len(house.statuses()) == 2


def test_a_drop_and_a_prune_are_answered_again_too(house):
    dead(house, "a", "b")
    dropped = answer(house, "drop", wire.Drop("a"))
    assert answer(house, "drop", wire.Drop("a")) == (dropped[0], True)
    prune = wire.Prune(confirm=True, dead=True)
    first = answer(house, "prune", prune, "p")
    assert first[0]["pruned"] == 1
    dead(house, "c")
    assert answer(house, "prune", prune, "p") == (first[0], True)
    assert house.statuses()["c"] == "dead"


def test_a_key_is_good_for_one_request(house):
    dead(house, "a", "b")
    answer(house, "drop", wire.Drop("a"))
    with pytest.raises(KeyReused):
        answer(house, "drop", wire.Drop("b"))
    assert house.statuses()["b"] == "dead"
    # A refusal and a dry run use up no key.
    with pytest.raises(wire.NoSuchSend):
        answer(house, "drop", wire.Drop("none"), "n")
    answer(house, "requeue", msgspec.structs.replace(FAILED, dry_run=True), "d")
    assert answer(house, "requeue", FAILED, "d")[1] is False


def test_keys_are_forgotten_after_their_time(new_house):
    house = new_house(idempotency_hours=1.0)
    dead(house, "a")
    answer(house, "requeue", FAILED)
    house.clock.pass_seconds(3599)
    house.sweep.run_once(house.clock.now_ms())
    assert answer(house, "requeue", FAILED)[1] is True
    house.clock.pass_seconds(2)
    house.sweep.run_once(house.clock.now_ms())
    assert answer(house, "requeue", FAILED)[1] is False


# -- by destination ----------------------------------------------------------------------------


class Explaining:
    """A reader that says how a statement would be done."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.plans: list[str] = []

    def execute(self, sql, parameters=()):
        rows = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
        self.plans.append(" ".join(row[3] for row in rows))
        return self.connection.execute("SELECT 1 WHERE 0")

    def page(self, sql, parameters, **_):
        self.execute(sql, parameters)
        return [], False

    def rows(self, sql, parameters, **_):
        return self.execute(sql, parameters).fetchall()


@pytest.mark.parametrize("status", [None, "pending", "inflight", "done", "dead", "aborted"])
def test_what_went_to_one_destination_is_found_without_reading_the_rest(house, status):
    filters = house.outbox.filters(None, "#alerts")
    with closing(sqlite3.connect(house.path)) as connection:
        reader = Explaining(connection)
        looking: Any = reader
        listings.sends(looking, Row, len, status, filters, None, "out_9", 100, False)
        listings.sends(looking, Row, len, status, filters, "out_0", None, 100, True)
        if status in ("pending", "dead"):
            listings.requeuable(looking, status, filters, None, None, False, 100)
    index = "outbox_destination (destination_ref=? AND destination_kind=?"
    for plan in reader.plans:
        if status in ("dead", "aborted"):  # of these there are few
            assert f"INDEX outbox_{status}" in plan
        else:
            assert index in plan
        assert "TEMP B-TREE" not in plan


def test_sends_are_listed_by_destination_in_each_state_and_in_order(house):
    for number in range(6):
        house.send(key=f"k{number}", to="#alerts" if number % 2 else "#other")
    house.set("k1", "done")
    house.set("k3", "dead")

    def listed(**query):
        page = house.outbox.list_sends(wire.ListQuery(to="#alerts", **query))
        return [row.client_message_id for row in page.sends]

    assert listed() == ["k5", "k3", "k1"]
    assert listed(after="out_0") == ["k1", "k3", "k5"]
    assert listed(status="done") == ["k1"]
    assert listed(status="dead") == ["k3"]
    assert listed(status="pending") == ["k5"]

"""Listings: pages, filters, order, size and indexes."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from appliance.outbox import listings, wire
from appliance.outbox.rows import SendRow
from tests.support.outbox import dead


def test_a_list_is_paged_without_gaps_or_repetitions(outbox):
    outbox.service.send_many([wire.Send("#a", str(number)) for number in range(25)])
    seen, query = [], wire.ListQuery(limit=7)
    while query is not None:
        page = outbox.service.list_sends(query)
        seen += [row.id for row in page.sends]
        query = None if page.next is None else wire.ListQuery(limit=7, before=page.next)
    assert len(seen) == 25
    assert seen == sorted(set(seen), reverse=True)


def test_a_list_is_filtered_by_status_mesh_and_destination(outbox):
    dead(outbox, "a")
    outbox.send(key="b", to="#alerts", mesh="ops")
    outbox.send(key="c")

    def ids(**more):
        return [row.client_message_id for row in outbox.service.list_sends(
            wire.ListQuery(**more)).sends]  # fmt: skip

    assert ids(failed=True) == ids(status="dead") == ["a"]
    assert ids(mesh="ops") == ["b", "a"]
    assert ids(to="#alerts", status="pending") == ["c", "b"]
    assert ids(limit=10_000) == ["c", "b", "a"]


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
def test_filter_by_destination_uses_an_index(outbox, status):
    filters = outbox.service.filters(None, "#alerts")
    with closing(sqlite3.connect(outbox.path)) as connection:
        reader = Explaining(connection)
        looking: Any = reader
        listings.sends(looking, SendRow, len, status, filters, None, "out_9", 100, False)
        listings.sends(looking, SendRow, len, status, filters, "out_0", None, 100, True)
        if status in ("pending", "dead"):
            listings.redrivable(looking, status, filters, None, None, False, 100)
    index = "outbox_destination (destination_ref=? AND destination_kind=?"
    assert len(reader.plans) >= 2
    for plan in reader.plans:
        if status in ("dead", "aborted"):  # there are few of them
            assert f"INDEX outbox_{status}" in plan
        else:
            assert index in plan
        assert "TEMP B-TREE" not in plan


def test_sends_are_listed_by_destination_in_each_state_and_in_order(outbox):
    for number in range(6):
        outbox.send(key=f"k{number}", to="#alerts" if number % 2 else "#other")
    outbox.set("k1", "done")
    outbox.set("k3", "dead")

    def listed(**query):
        page = outbox.service.list_sends(wire.ListQuery(to="#alerts", **query))
        return [row.client_message_id for row in page.sends]

    assert listed() == ["k5", "k3", "k1"]
    assert listed(after="out_0") == ["k1", "k3", "k5"]
    assert listed(status="done") == ["k1"]
    assert listed(status="dead") == ["k3"]
    assert listed(status="pending") == ["k5"]

"""The broker's checks: broken, found; whole, nothing found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.doctor.house import House

DEDUPE = (
    "INSERT INTO client_message_dedupe VALUES ('mesh_1', 'c1', 'bmsg_1', 'bh_1', zeroblob(32),"
    " 'topic', 'alerts', 1, NULL, {available})"
)
BROKEN = {
    "message": DEDUPE.format(available=1),
    "tombstone": DEDUPE.format(available=0),
    "delivery": "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank,"
    " ready_ms, created_ms) VALUES ('mesh_1', 'bmsg_1', 'x', 'dm', 1, 1, 1)",
    "mention": "INSERT INTO mention_index VALUES ('mesh_1', 'x', 'bmsg_1')",
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def break_it(house: House, sql: str) -> None:
    with closing(sqlite3.connect(house.data.database("broker"))) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_row_that_breaks_the_promise_is_found(house: House, rule: str) -> None:
    assert house.find("broker.orphans") == []
    break_it(house, BROKEN[rule])
    found = house.find("broker.orphans")
    assert any(f"({rule})" in one.sentence for one in found)
    assert found[0].subject == "message bmsg_1"


def test_ids_that_are_forgotten_before_their_messages_are_found(house: House) -> None:
    mesh = "INSERT INTO mesh VALUES ('mesh_1', 'lab', '{}', 30, 90, 'prefer_newest', 1)"
    break_it(house, mesh.format("permanent"))
    assert house.find("broker.retention") == []
    break_it(house, "UPDATE mesh SET dedupe_mode = 'retention_scoped'")
    [found] = house.find("broker.retention")
    assert found.hint == "agentlip mesh update lab --dedupe-days 90"

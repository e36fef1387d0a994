"""The broker's checks: broken, found; whole, nothing found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.clock_jump import ClockNote, ClockReading, encoded
from doctor.check import Severity
from tests.doctor.house import House

DEDUPE = (
    "INSERT INTO client_message_dedupe VALUES ('mesh_1', 'c1', 'bmsg_1', 'bh_1', zeroblob(32),"
    " 'topic', 'alerts', 1, NULL, {available}, NULL)"
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


def test_deliveries_that_wait_for_a_time_in_the_future_are_found(house: House) -> None:
    assert house.find("broker.clock") == []
    later_ms = SystemClock().now_ms() + 86_400_000
    break_it(house, BROKEN["delivery"].replace("'dm', 1, 1", f"'dm', 1, {later_ms}"))
    [found] = house.find("broker.clock")
    assert found.hint == "agentlipd restart"
    assert found.sentence.startswith("1 deliveries wait until a time in the future")


@pytest.mark.parametrize(("hours", "findings"), [(1, 1), (30, 0)])
def test_a_clock_that_was_set_is_told_for_a_day(house: House, hours: int, findings: int) -> None:
    now_ms = SystemClock().now_ms()
    reading = ClockReading(now_ms, 1, "boot")
    note = encoded(ClockNote(reading, -3_600_000, iso(now_ms - hours * 3_600_000)))
    break_it(house, f"INSERT INTO meta VALUES ('clock', '{note}')")
    found = house.find("broker.clock")
    assert [each.severity for each in found] == [Severity.INFO] * findings


def test_webhooks_that_are_off_or_take_nothing_are_found(house: House) -> None:
    now_ms = SystemClock().now_ms()
    break_it(
        house, "INSERT INTO mesh VALUES ('mesh_1', 'lab', 'permanent', 30, 30, 'prefer_newest', 1)"
    )
    break_it(
        house,
        "INSERT INTO webhook (mesh_id, id, url, added_ms, secret, enabled, failing_since_ms,"
        " disabled_because) VALUES"
        " ('mesh_1', 'well', 'u', 1, 's', 1, NULL, NULL),"
        f" ('mesh_1', 'lately', 'u', 1, 's', 1, {now_ms - 1000}, NULL),"
        " ('mesh_1', 'switched', 'u', 1, 's', 0, NULL, NULL)",
    )
    assert house.find("broker.webhooks") == []
    break_it(
        house,
        "INSERT INTO webhook (mesh_id, id, url, added_ms, secret, enabled, failing_since_ms,"
        " disabled_because) VALUES"
        f" ('mesh_1', 'failing', 'u', 1, 's', 1, {now_ms - 36_000_000}, NULL),"
        " ('mesh_1', 'gone', 'u', 1, 's', 0, 1, 'its receiver answered 410 Gone')",
    )
    break_it(house, BROKEN["delivery"].replace("'x'", "'webhook:gone'"))
    failing, gone = house.find("broker.webhooks")
    assert "takes nothing for 10.0 hours; 0 messages" in failing.sentence
    assert "410 Gone; 1 messages wait" in gone.sentence
    assert "update-webhook lab gone --enable" in gone.hint


def test_a_file_of_before_there_were_secrets_is_no_trouble(house: House) -> None:
    break_it(house, "ALTER TABLE webhook DROP COLUMN disabled_because")
    assert house.find("broker.webhooks") == []

"""The outbox's checks: break, find; and nothing is found where nothing is wrong."""

import msgspec
import pytest

from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.clock_jump import ClockNote, ClockReading
from appliance.mesh.fingerprint import fingerprint
from doctor.check import Severity
from tests.doctor.house import House

NOW_MS = SystemClock().now_ms()
HOUR_MS = 3_600_000


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def put(house, number, status="pending", age_ms=0, **more):
    row = {
        "id": f"out_{number}",
        "client_message_id": f"k{number}",
        "request_fingerprint": fingerprint("topic", "a", b"x", meta={"n": 1}),
        "payload": b"x",
        "enqueued_at": NOW_MS - age_ms,
        "next_attempt_at": NOW_MS,
        "status": status,
        "mesh": "ops",
        "target": "broker",
        "route": "broker:ops",
        "destination_kind": "topic",
        "destination_ref": "a",
        "priority": "next",
        "meta": '{"n":1}',
        "delivered_at": NOW_MS if status == "done" else None,
        "aborted_at": NOW_MS if status == "aborted" else None,
        **more,
    }
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    sql = f"INSERT INTO outbox ({names}) VALUES ({marks})"
    house.execute(sql, *row.values(), store="outbox")


CHECKS = ("outbox.dead", "outbox.waiting", "outbox.clock", "outbox.chain", "outbox.fingerprints")


def test_an_outbox_at_work_is_well(house):
    put(house, 1)
    put(house, 2, "inflight", 59 * 60_000)
    put(house, 3, "done", 99 * HOUR_MS, payload=b"", payload_dropped_at=NOW_MS)
    put(house, 4, "aborted", superseded_by="out_1")
    assert [house.find(name) for name in CHECKS] == [[]] * len(CHECKS)


def test_dead_sends_are_counted(house):
    put(house, 1, "dead")
    put(house, 2, "dead")
    (found,) = house.find("outbox.dead")
    assert found.severity is Severity.WARNING
    assert found.sentence.startswith("2 sends")


def test_sends_that_wait_for_hours_are_told_mesh_by_mesh(house):
    put(house, 1, age_ms=2 * HOUR_MS)
    put(house, 2, age_ms=3 * HOUR_MS)
    put(house, 3, age_ms=5 * HOUR_MS, mesh="other")
    first, second = house.find("outbox.waiting")
    assert (first.subject, second.subject) == ("mesh ops", "mesh other")
    # A minute may have passed since: the file is real, and so is the clock.
    assert first.sentence.startswith("2 sends are not delivered, the oldest for 3.")


@pytest.mark.parametrize("column", ["enqueued_at", "next_attempt_at"])
def test_times_in_the_future_are_found(house, column):
    put(house, 1, **{column: NOW_MS + 24 * HOUR_MS})
    (found,) = house.find("outbox.clock")
    assert found.severity is Severity.WARNING
    assert "1 waiting sends have times in the future" in found.sentence
    assert found.hint == "agentlipd restart"


@pytest.mark.parametrize(("hours", "findings"), [(1, 1), (30, 0)])
def test_a_clock_that_was_set_is_told_for_a_day(house, hours, findings):
    reading = ClockReading(NOW_MS, 1, "boot")
    note = ClockNote(reading, -3_600_000, iso(NOW_MS - hours * HOUR_MS))
    text = msgspec.json.encode(note).decode()
    house.execute("INSERT INTO meta VALUES ('clock', ?)", text, store="outbox")
    found = house.find("outbox.clock")
    assert [each.severity for each in found] == [Severity.INFO] * findings


def test_a_successor_that_is_not_there_is_found(house):
    put(house, 1, "aborted", superseded_by="out_9")
    (found,) = house.find("outbox.chain")
    assert (found.subject, found.severity) == ("send out_1", Severity.ERROR)


@pytest.mark.parametrize(
    "changed", [{"payload": b"y"}, {"destination_ref": "b"}, {"meta": "{"}, {"priority": "now"}]
)
def test_a_send_that_was_changed_is_found(house, changed):
    put(house, 1)
    put(house, 2, **changed)
    (found,) = house.find("outbox.fingerprints")
    assert found.subject == "send out_2"

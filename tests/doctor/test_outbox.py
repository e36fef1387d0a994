"""The outbox's checks: break, find; and nothing is found where nothing is wrong."""

import msgspec
import pytest

from appliance.kernel.clock import HOUR_MS, SystemClock, iso
from appliance.kernel.steady_clock import ClockNote, ClockReading
from appliance.mesh.fingerprint import fingerprint
from doctor.check import Severity
from tests.doctor.workspace import WorkspaceFixture

NOW_MS = SystemClock().now_ms()


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFixture(tmp_path)


def put(workspace, number, status="pending", age_ms=0, **more):
    row = {
        "id": f"out_{number}",
        "client_message_id": f"k{number}",
        "request_fingerprint": fingerprint("topic", "a", b"x", meta={"n": 1}),
        "payload": b"x",
        "enqueued_at": NOW_MS - age_ms,
        "accepted_steady_ms": NOW_MS - age_ms,
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
    workspace.execute(sql, *row.values(), store="outbox")


CHECKS = ("outbox.dead", "outbox.waiting", "outbox.clock", "outbox.chain", "outbox.fingerprints")


def test_normal_outbox_has_no_findings(workspace):
    put(workspace, 1)
    put(workspace, 2, "inflight", 59 * 60_000)
    put(workspace, 3, "done", 99 * HOUR_MS, payload=b"", payload_dropped_at=NOW_MS)
    put(workspace, 4, "aborted", superseded_by="out_1")
    assert [workspace.find(name) for name in CHECKS] == [[]] * len(CHECKS)


def test_dead_letters_are_counted(workspace):
    put(workspace, 1, "dead")
    put(workspace, 2, "dead")
    (finding,) = workspace.find("outbox.dead")
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("2 sends")


def test_long_pending_sends_are_reported_by_mesh(workspace):
    put(workspace, 1, age_ms=2 * HOUR_MS)
    put(workspace, 2, age_ms=3 * HOUR_MS)
    put(workspace, 3, age_ms=5 * HOUR_MS, mesh="other")
    first, second = workspace.find("outbox.waiting")
    assert (first.subject, second.subject) == ("mesh ops", "mesh other")
    # A minute may have passed since: the file is real, and so is the clock.
    assert first.message.startswith("2 sends are undelivered, the oldest for 3.")


def test_wait_above_any_setting_is_found(workspace):
    put(workspace, 1, next_attempt_at=NOW_MS + 24 * HOUR_MS)
    (finding,) = workspace.find("outbox.clock")
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("1 sends wait for up to 2")
    assert finding.hint == "agentlipd restart"


@pytest.mark.parametrize(("hours", "count"), [(1, 1), (30, 0)])
def test_clock_change_is_reported_for_a_day(workspace, hours, count):
    reading = ClockReading(NOW_MS, 1, "boot")
    note = ClockNote(reading, -3_600_000, iso(NOW_MS - hours * HOUR_MS))
    text = msgspec.json.encode(note).decode()
    workspace.execute("INSERT INTO meta VALUES ('clock', ?)", text, store="outbox")
    findings = workspace.find("outbox.clock")
    assert [each.severity for each in findings] == [Severity.INFO] * count


def test_missing_successor_is_found(workspace):
    put(workspace, 1, "aborted", superseded_by="out_9")
    (finding,) = workspace.find("outbox.chain")
    assert (finding.subject, finding.severity) == ("send out_1", Severity.ERROR)


@pytest.mark.parametrize(
    "changed", [{"payload": b"y"}, {"destination_ref": "b"}, {"meta": "{"}, {"priority": "now"}]
)
def test_changed_send_is_found(workspace, changed):
    put(workspace, 1)
    put(workspace, 2, **changed)
    (finding,) = workspace.find("outbox.fingerprints")
    assert finding.subject == "send out_2"

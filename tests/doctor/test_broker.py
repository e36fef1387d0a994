"""The broker's checks: broken, found; whole, nothing found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.steady_clock import ClockNote, ClockReading, encode
from doctor.check import Severity
from tests.doctor.workspace import WorkspaceFixture

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
def workspace(tmp_path: Path) -> WorkspaceFixture:
    return WorkspaceFixture(tmp_path)


def break_it(workspace: WorkspaceFixture, sql: str) -> None:
    with closing(sqlite3.connect(workspace.data.database("broker"))) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("rule", BROKEN)
def test_orphaned_broker_row_is_found(workspace: WorkspaceFixture, rule: str) -> None:
    assert workspace.find("broker.orphans") == []
    break_it(workspace, BROKEN[rule])
    findings = workspace.find("broker.orphans")
    assert any(f"({rule})" in finding.message for finding in findings)
    assert findings[0].subject == "message bmsg_1"


def test_ids_kept_shorter_than_their_messages_are_found(
    workspace: WorkspaceFixture,
) -> None:
    mesh = "INSERT INTO mesh VALUES ('mesh_1', 'lab', '{}', 30, 90, 'prefer_newest', 1)"
    break_it(workspace, mesh.format("permanent"))
    assert workspace.find("broker.retention") == []
    break_it(workspace, "UPDATE mesh SET dedupe_mode = 'retention_scoped'")
    [finding] = workspace.find("broker.retention")
    assert finding.hint == "agentlip mesh update lab --dedupe-days 90"


def test_deliveries_that_wait_too_far_in_the_future_are_found(
    workspace: WorkspaceFixture,
) -> None:
    assert workspace.find("broker.clock") == []
    later_ms = SystemClock().now_ms() + 86_400_000
    break_it(workspace, BROKEN["delivery"].replace("'dm', 1, 1", f"'dm', 1, {later_ms}"))
    [finding] = workspace.find("broker.clock")
    assert finding.hint == "agentlipd restart"
    assert finding.message.startswith("1 deliveries wait for up to ")


@pytest.mark.parametrize(("hours", "count"), [(1, 1), (30, 0)])
def test_clock_change_is_reported_for_a_day(
    workspace: WorkspaceFixture, hours: int, count: int
) -> None:
    now_ms = SystemClock().now_ms()
    reading = ClockReading(now_ms, 1, "boot")
    note = encode(ClockNote(reading, -3_600_000, iso(now_ms - hours * 3_600_000)))
    break_it(workspace, f"INSERT INTO meta VALUES ('clock', '{note}')")
    findings = workspace.find("broker.clock")
    assert [each.severity for each in findings] == [Severity.INFO] * count


def test_disabled_and_failing_webhooks_are_found(workspace: WorkspaceFixture) -> None:
    now_ms = SystemClock().now_ms()
    break_it(
        workspace,
        "INSERT INTO mesh VALUES ('mesh_1', 'lab', 'permanent', 30, 30, 'prefer_newest', 1)",
    )
    break_it(
        workspace,
        "INSERT INTO webhook (mesh_id, id, url, added_ms, secret, enabled, failing_since_ms,"
        " disabled_because) VALUES"
        " ('mesh_1', 'well', 'u', 1, 's', 1, NULL, NULL),"
        f" ('mesh_1', 'lately', 'u', 1, 's', 1, {now_ms - 1000}, NULL),"
        " ('mesh_1', 'switched', 'u', 1, 's', 0, NULL, NULL)",
    )
    assert workspace.find("broker.webhooks") == []
    break_it(
        workspace,
        "INSERT INTO webhook (mesh_id, id, url, added_ms, secret, enabled, failing_since_ms,"
        " disabled_because) VALUES"
        f" ('mesh_1', 'failing', 'u', 1, 's', 1, {now_ms - 36_000_000}, NULL),"
        " ('mesh_1', 'gone', 'u', 1, 's', 0, 1, 'its receiver answered 410 Gone')",
    )
    break_it(workspace, BROKEN["delivery"].replace("'x'", "'webhook:gone'"))
    failing, gone = workspace.find("broker.webhooks")
    assert "has failed for 10.0 hours; 0 messages" in failing.message
    assert "410 Gone; 1 messages wait" in gone.message
    assert "update-webhook lab gone --enable" in gone.hint


def test_file_without_secrets_yields_no_finding(workspace: WorkspaceFixture) -> None:
    break_it(workspace, "ALTER TABLE webhook DROP COLUMN disabled_because")
    assert workspace.find("broker.webhooks") == []

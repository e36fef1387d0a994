"""The broker's check of orphans: broken, found; whole, nothing found."""

import sqlite3
from contextlib import closing

import pytest

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

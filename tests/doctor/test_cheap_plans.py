"""How SQLite runs the statements of cheap checks on large tables: by index, up to a limit."""

import sqlite3
from pathlib import Path

import pytest

from appliance.hub import checks_events, event_replay
from appliance.integrations import checks_event_copies
from appliance.kernel.store_declaration import DECLARATIONS
from tests.doctor.workspace import WorkspaceFixture

LARGE = ("events", "messages", "outbox", "journal", "inbox", "message_history", "delivery_queue")
STATEMENTS = [
    ("hub", checks_event_copies.GAPS),
    ("hub", checks_events.NO_SCOPE),
    ("hub", event_replay.NEWEST),
    ("hub", event_replay.ROW["message"]),
    *((store, declared.newest) for store, declared in DECLARATIONS.items() if declared.newest),
]


def plan(workspace: WorkspaceFixture, store: str, sql: str) -> list[str]:
    values = {"newest": 1, "jump": 2, "before": 3} if ":" in sql else (1,) * sql.count("?")
    connection = sqlite3.connect(workspace.data.database(store))
    try:
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    finally:
        connection.close()


def reads_a_whole_table(steps: list[str], sql: str) -> list[str]:
    """Scans of large tables. A scan in the order of an index or of the rowid ends at a LIMIT."""
    bounded = "LIMIT" in sql and not any("FOR ORDER BY" in step for step in steps[:3])
    scans = [
        step
        for step in steps
        if (step.startswith("SCAN") or " USING " not in step) and {*step.split()} & {*LARGE}
    ]
    return [] if bounded else scans


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceFixture:
    return WorkspaceFixture(Path(tmp_path_factory.mktemp("plans")))


@pytest.mark.parametrize(("store", "sql"), STATEMENTS)
def test_no_cheap_statement_reads_a_large_table(workspace, store: str, sql: str) -> None:
    assert reads_a_whole_table(plan(workspace, store, sql), sql) == []

"""What tests of repairs share: the command, and a fingerprint of the data."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from appliance.checks.context import open_read_only
from appliance.checks.settings import DoctorSettings
from appliance.checks.step import Step
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import STORES
from doctor.cli import app
from doctor.repair import AppliedStep, Repair
from tests.doctor.workspace import NOW, WorkspaceFixture
from tests.support.database_files import change

# Derived, or a record of what programs did; not what people and agents wrote.
DERIVED = ("messages_fts", "x_cjk", "x_fts", "x_migrations", "sqlite_")


READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL").fetchall()
connection.execute("BEGIN")
print(connection.execute("SELECT count(*) FROM messages").fetchone(), flush=True)
sys.stdin.read()
"""


@contextmanager
def read_elsewhere(database: Path) -> Iterator[int]:
    """Another process reads the database of the hub while the block runs; its process id."""
    command = [sys.executable, "-c", READER, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline()
        yield reader.pid
        reader.communicate(b"")


def doctor(workspace: WorkspaceFixture, *arguments: str, **more: Any) -> Any:
    where = ["--workspace", str(workspace.data.workspace)]
    return CliRunner().invoke(app, [*where, *arguments], catch_exceptions=False, **more)


def repair(workspace: WorkspaceFixture, *arguments: str, **more: Any) -> Any:
    return doctor(workspace, "repair", *arguments, **more)


def data_of(workspace: WorkspaceFixture) -> dict[str, str]:
    """The hash of every table that holds data, by store and name."""
    paths = {store: workspace.data.database(store) for store in STORES}
    return {
        table: digest
        for store, path in paths.items()
        if path.exists()
        for table, digest in tables_of(store, path).items()
    }


def tables_of(store: str, path: Path) -> dict[str, str]:
    """The same for one store, opened as the checks do, so that a write-ahead log stays."""
    hashes = {}
    with closing(open_read_only(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (table,) in names.fetchall():
            if not table.startswith(DERIVED):
                rows = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                text = "\n".join(sorted(map(repr, connection.execute(f"SELECT * FROM {table}"))))
                hashes[f"{store}.{table}"] = f"{rows} {hashlib.sha256(text.encode()).hexdigest()}"
    return hashes


def apply(workspace: WorkspaceFixture, *steps: Step) -> list[AppliedStep]:
    """Applies steps to the workspace."""
    return Repair(workspace.data, DoctorSettings(), SystemClock()).apply(steps)


def in_sql(workspace: WorkspaceFixture, *statements: str) -> None:
    change(workspace.data.database("hub"), *statements)


# -- breakages -----------------------------------------------------------------------------


def open_token(workspace: WorkspaceFixture) -> None:
    workspace.data.token_file.chmod(0o644)


def leave_server_file(workspace: WorkspaceFixture) -> None:
    workspace.announce(pid=999_999_999)


def drop_search(workspace: WorkspaceFixture) -> None:
    in_sql(workspace, "DROP TABLE x_fts")


def write_history(workspace: WorkspaceFixture, message: str = "msg_1") -> None:
    """A message that was created, edited and moved, and the same as its events."""
    created = {
        "id": message, "topic_id": "t_1", "channel_id": "ch_1", "sender": "ada",
        "content_raw": "first", "version": 1, "created_at": NOW,
    }  # fmt: skip
    events = [
        ("message.created", {"message": created}, "t_1", None),
        ("message.edited", {"new_content": "second", "version": 2}, "t_1", None),
        (
            "message.moved_topic",
            {"old_topic_id": "t_1", "new_topic_id": "t_2", "channel_id": "ch_1", "version": 3},
            "t_1",
            "t_2",
        ),
        ("message.edited", {"new_content": "third", "version": 4}, "t_2", None),
    ]
    workspace.execute("INSERT INTO topics VALUES ('t_2', 'ch_1', 'two', ?, ?)", NOW, NOW)
    workspace.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, version, created_at,"
        " edited_at) VALUES (?, 't_2', 'ch_1', 'ada', 'third', 4, ?, ?)",
        message, NOW, NOW,
    )  # fmt: skip
    for name, data, topic, topic2 in events:
        workspace.execute(
            "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
            " entity_type, entity_id, data_json) VALUES (?, ?, 'ch_1', ?, ?, 'message', ?, ?)",
            NOW, name, topic, topic2, message, json.dumps(data),
        )  # fmt: skip
    workspace.index()

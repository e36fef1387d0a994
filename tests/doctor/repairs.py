"""What tests of repairs share: the command, and a fingerprint of the data."""

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from appliance.checks.settings import DoctorSettings
from appliance.checks.step import Step
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import STORES
from doctor.cli import app
from doctor.repair import AppliedStep, Repair
from tests.doctor.workspace import WorkspaceFixture

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
    hashes = {}
    for store in STORES:
        path = workspace.data.database(store)
        if not path.exists():
            continue
        with closing(sqlite3.connect(path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            for (table,) in names.fetchall():
                if not table.startswith(DERIVED):
                    rows = sorted(map(repr, connection.execute(f"SELECT * FROM {table}")))
                    text = "\n".join(rows).encode()
                    hashes[f"{store}.{table}"] = hashlib.sha256(text).hexdigest()
    return hashes


def apply(workspace: WorkspaceFixture, *steps: Step) -> list[AppliedStep]:
    """Applies steps to the workspace."""
    return Repair(workspace.data, DoctorSettings(), SystemClock()).apply(steps)


def in_sql(workspace: WorkspaceFixture, *statements: str) -> None:
    with closing(sqlite3.connect(workspace.data.database("hub"))) as connection, connection:
        for statement in statements:
            connection.execute(statement)


# -- breakages -----------------------------------------------------------------------------


def open_token(workspace: WorkspaceFixture) -> None:
    workspace.data.token_file.chmod(0o644)


def leave_server_file(workspace: WorkspaceFixture) -> None:
    workspace.announce(pid=999_999_999)


def drop_search(workspace: WorkspaceFixture) -> None:
    in_sql(workspace, "DROP TABLE x_fts")

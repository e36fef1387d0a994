"""`agentlip doctor` as people and scripts use it, beside a process that answers or does not."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from doctor import run
from doctor.all_checks import CHECKS
from doctor.cli import app
from tests.doctor.workspace import HEALTHY_STORE, WorkspaceFixture, ready_body
from tests.support.database_files import damage_table
from tests.support.http_server import HttpRequest, Reply, http_server

INSTANCE = "instance-1"


def doctor(workspace: WorkspaceFixture | None, *arguments: str) -> Any:
    where = [] if workspace is None else ["--workspace", str(workspace.data.workspace)]
    return CliRunner().invoke(app, [*where, *arguments], catch_exceptions=False)


@contextmanager
def answering(
    workspace: WorkspaceFixture, body: bytes | None = None, status: int = 200
) -> Iterator[list[str]]:
    """A hub's port that answers /-/ready from the same table, or with `body`."""
    requests: list[str] = []

    def reply(request: HttpRequest) -> Reply:
        requests.append(f"{request.path} {request.headers.get('authorization')}")
        with workspace.context() as context:
            ready = ready_body(context, INSTANCE)
        return status, {}, msgspec.json.encode(ready) if body is None else body

    with http_server(reply) as server:
        workspace.announce(port=server.port, pid=os.getpid())
        yield requests


# -- output and exit codes -----------------------------------------------------------------


def test_healthy_workspace_prints_groups_and_a_summary(workspace: WorkspaceFixture) -> None:
    workspace.talk(4)
    result = doctor(workspace)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Agentlip doctor ")
    assert any(line.startswith("Events:") and "last 4 at 2026" in line for line in lines)
    assert lines[-1] == f"Summary: 0 warnings, 0 errors ({len(run.select([], False))} checks)"
    assert all(line.startswith("[ok]") for line in lines if line.startswith("["))


def test_checkpoint_empties_the_log_beside_an_open_connection(workspace: WorkspaceFixture) -> None:
    database = workspace.data.database("hub")
    log = database.with_name(database.name + "-wal")
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = WAL").fetchall()
        reader.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        workspace.talk(50)
        assert log.stat().st_size > 0
        result = doctor(workspace, "--checkpoint")
        assert result.exit_code == 0
        assert "hub: 0 bytes are left in the write-ahead log" in result.stderr
        assert log.stat().st_size == 0
        assert reader.execute("SELECT count(*) FROM messages").fetchone() == (50,)


def test_json_is_the_only_text_on_standard_output(workspace: WorkspaceFixture) -> None:
    os.chmod(workspace.data.token_file, 0o644)
    result = doctor(workspace, "--json", "--all")
    assert result.exit_code == 2
    value = json.loads(result.stdout)
    assert value["verdict"] == "error"
    assert (value["warnings"], value["errors"]) == (0, 1)
    (bad,) = [each for each in value["checks"] if each["findings"]]
    assert bad["check"] == "host.private"
    assert bad["findings"][0]["severity"] == "error"
    assert bad["findings"][0]["hint"].startswith("chmod go=")
    assert len(value["checks"]) == len(run.select([], True))


def test_list_needs_no_workspace() -> None:
    lines = doctor(None, "list").stdout.splitlines()
    assert len(lines) == len(CHECKS)
    rows = json.loads(doctor(None, "list", "--json").stdout)
    assert [row["name"] for row in rows] == [check.name for check in CHECKS]
    assert rows[0]["problems"] == ["read-only", "full", "paused", "low"]


@pytest.mark.parametrize("arguments", [["--run", "nothing"], ["clear", "nothing"]])
def test_unknown_names_exit_with_3_and_a_hint(
    workspace: WorkspaceFixture, arguments: list[str]
) -> None:
    result = doctor(workspace, *arguments)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "Hint:" in result.stderr


def test_missing_workspace_exits_with_3(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--workspace", str(tmp_path / "x"), "--json"])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "agentlip init" in json.loads(result.stderr)["hint"]


# -- beside a running hub ------------------------------------------------------------------


def test_facts_come_from_the_running_appliance(workspace: WorkspaceFixture) -> None:
    with (
        workspace.running({**HEALTHY_STORE, "stalled_seconds": 3.0}, loop_delay_seconds=0.7),
        answering(workspace) as requests,
    ):
        result = doctor(workspace, "--json")
    value = json.loads(result.stdout)
    assert {each["check"] for each in value["checks"] if each["findings"]} == {
        "host.loop-delay",
        "store.writer",
    }
    assert value["facts"]["running"] is True
    assert value["facts"]["instance_id"] == INSTANCE
    assert requests == [f"/-/ready Bearer {workspace.data.read_token()}"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "sent an unexpected response"),
        (b'{"status": "ready"}', "without details"),
        (b'{"status": "ready", "instance_id": "other", "facts": {}}', "another instance"),
    ],
)
def test_unexpected_response_is_reported(
    workspace: WorkspaceFixture, body: bytes, why: str
) -> None:
    with workspace.running(), answering(workspace, body):
        result = doctor(workspace, "--quiet")
    assert result.exit_code == 2
    assert "host.process" in result.stdout
    assert why in result.stdout


@pytest.mark.parametrize(("message", "why"), [({"port": 1}, "port 1"), ({"port": 0}, "no port")])
def test_unreachable_appliance_is_reported(
    workspace: WorkspaceFixture, message: dict[str, object], why: str
) -> None:
    with workspace.running():
        workspace.announce(**message)
        result = doctor(workspace, "--quiet")
    assert result.exit_code == 2
    assert "can't be reached" in result.stdout
    assert why in result.stdout


# -- clearing a suspect store --------------------------------------------------------------


def test_undamaged_store_is_cleared(workspace: WorkspaceFixture) -> None:
    workspace.talk(50)
    workspace.data.suspect_file("hub").write_text("SQLITE_CORRUPT\n")
    result = doctor(workspace, "clear", "hub")
    assert result.exit_code == 0
    assert "no longer suspect" in result.stdout
    assert not workspace.data.suspect_file("hub").exists()
    second = doctor(workspace, "--json", "clear", "hub")
    assert json.loads(second.stdout) == {"store": "hub", "cleared": False}


def test_damaged_store_stays_suspect(workspace: WorkspaceFixture) -> None:
    workspace.talk(300)
    damage_table(workspace.data.database("hub"))
    workspace.data.suspect_file("hub").touch()
    result = doctor(workspace, "clear", "hub")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Hint: agentlip recover hub --yes" in result.stderr
    assert workspace.data.suspect_file("hub").exists()
    workspace.data.database("hub").unlink()
    assert doctor(workspace, "clear", "hub").exit_code == 2
    assert workspace.data.suspect_file("hub").exists()

"""Each check: break the workspace, find it; and nothing is found where nothing is wrong."""

import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.checks.check import FINDINGS_MAX, Severity
from appliance.checks.settings import DoctorSettings
from appliance.kernel import store_declaration
from appliance.kernel.clock import SystemClock
from appliance.readiness import readiness_of
from tests.doctor.workspace import HEALTHY_STORE, WorkspaceFixture
from tests.support import board
from tests.support.forks import exit_code_of

MIB = 1024 * 1024
GIB = 1024 * MIB


def severities(workspace, name: str) -> list[str]:
    return [finding.severity.value for finding in workspace.find(name)]


def volume(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    counted = SimpleNamespace(
        f_blocks=total // 4096, f_bavail=free // 4096, f_frsize=4096, f_flag=0
    )
    monkeypatch.setattr(os, "statvfs", lambda path: counted)


# -- silence -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "free"),
    [
        (100 * GIB, 50 * GIB),
        (8 * GIB, 2 * GIB),
        (512 * MIB, 300 * MIB),
        (64 * MIB, 40 * MIB),
        (0, 0),
    ],
)
def test_disk_with_free_space_has_no_findings_at_any_size(
    workspace, monkeypatch: pytest.MonkeyPatch, total: int, free: int
) -> None:
    volume(monkeypatch, total, free)
    assert workspace.find("host.disk") == []


def test_checks_do_not_change_the_files_after_a_crash(workspace) -> None:
    workspace.talk()

    def write() -> None:
        connection = sqlite3.connect(workspace.data.database("hub"), isolation_level=None)
        connection.execute("INSERT INTO meta VALUES ('only in', 'the log')")
        os._exit(0)  # without closing it

    assert exit_code_of(write) == 0
    kept = [workspace.data.database("hub"), workspace.data.dir / "db.sqlite3-wal"]
    before = [path.read_bytes() for path in kept]
    assert before[1]
    assert workspace.find_all() == []
    assert [path.read_bytes() for path in kept] == before


# -- the machine and the process -----------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "free", "severity"),
    [
        (100 * GIB, 9 * GIB, "warning"),
        (100 * GIB, 4 * GIB, "error"),
        (8 * GIB, 900 * MIB, "warning"),
        (8 * GIB, 450 * MIB, "error"),
        (512 * MIB, 200 * MIB, "warning"),
        (512 * MIB, 100 * MIB, "error"),
    ],
)
def test_low_disk_space_is_found(workspace, monkeypatch, total, free, severity):
    volume(monkeypatch, total, free)
    assert severities(workspace, "host.disk") == [severity]


def test_disk_thresholds_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DoctorSettings(
        disk_warning_bytes=0, disk_warning_percent=0, disk_error_bytes=0, disk_error_percent=0
    )
    workspace = WorkspaceFixture(tmp_path, settings)
    volume(monkeypatch, 100 * GIB, GIB)
    assert workspace.find("host.disk") == []


def test_lock_file_removed_from_a_running_hub_is_critical(workspace) -> None:
    with workspace.running(lock_intact=False):
        assert severities(workspace, "host.lock") == ["critical"]


def test_server_file_of_another_instance_is_found(workspace) -> None:
    with workspace.running():
        workspace.announce(instance_id="yesterday")
        assert severities(workspace, "host.server-file") == ["warning"]


def test_missing_or_invalid_server_file_is_found(workspace) -> None:
    with workspace.running():
        workspace.data.write_private(workspace.data.server_file, "{")
        assert severities(workspace, "host.server-file") == ["warning"]
        workspace.data.server_file.unlink()
        assert severities(workspace, "host.server-file") == ["warning"]


def test_stopping_appliance_is_not_ready(workspace) -> None:
    with workspace.running(stopping=True):
        assert severities(workspace, "host.process") == ["critical"]


@pytest.mark.parametrize(("delay", "expected"), [(0.4, []), (0.6, ["warning"]), (6.0, ["error"])])
def test_delayed_event_loop_is_found(workspace, delay: float, expected: list[str]) -> None:
    with workspace.running(loop_delay_seconds=delay):
        assert severities(workspace, "host.loop-delay") == expected


# -- stores --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "severity"),
    [
        ("UPDATE meta SET value = '9' WHERE key = 'x_compat'", "error"),
        ("UPDATE meta SET value = '2' WHERE key = 'schema_version'", "error"),
        ("UPDATE x_migrations SET sha256 = 'other' WHERE number = 2", "error"),
        ("DELETE FROM x_migrations WHERE number = 2", "info"),
        ("UPDATE meta SET value = 'many' WHERE key = 'x_schema'", "error"),
    ],
)
def test_unsuitable_schema_is_found(workspace, sql: str, severity: str) -> None:
    workspace.execute(sql)
    assert severities(workspace, "store.schema") == [severity]


@pytest.mark.parametrize(("size", "expected"), [(99, []), (101, ["warning"]), (501, ["error"])])
def test_large_write_ahead_log_is_found(workspace, size: int, expected: list[str]) -> None:
    log = workspace.data.dir / "db.sqlite3-wal"
    with log.open("wb") as file:
        file.truncate(size * MIB)
    assert severities(workspace, "store.wal") == expected
    log.unlink()


def test_store_that_other_programs_write_is_checked_if_it_has_a_file(workspace, monkeypatch):
    monkeypatch.setitem(store_declaration.DECLARATIONS, "board", board.DECLARED)
    monkeypatch.setattr("doctor.checks.store.SHARED_STORES", ("board",))
    assert severities(workspace, "store.integrity") == []
    path = workspace.data.database("board")
    board.open_board(path, "FULL").close()
    assert severities(workspace, "store.integrity") == []
    damaged = path.read_bytes()[:-100] + b"\xff" * 100
    path.write_bytes(damaged[:4096] + b"\xff" * (len(damaged) - 4096))
    for name in ("store.whole", "store.integrity"):
        (finding,) = workspace.find(name)
        assert finding.subject == "board"


def test_suspect_store_is_critical(workspace) -> None:
    workspace.data.suspect_file("hub").touch()
    (finding,) = workspace.find("store.suspect")
    assert finding.severity is Severity.CRITICAL
    assert finding.hint == "agentlip doctor clear hub"
    workspace.data.suspect_file("hub").unlink()
    with workspace.running({**HEALTHY_STORE, "suspect": 1.0}):
        assert severities(workspace, "store.suspect") == ["critical"]
        result = readiness_of(workspace.context(), "instance-1")
        assert result.suspended == ["hub"], "it stopped after the start"


@pytest.mark.parametrize(
    ("fact", "value", "severity"),
    [
        ("writer_alive", 0.0, "critical"),
        ("writing_paused", 1.0, "error"),
        ("detached", 1.0, "critical"),
        ("stalled_seconds", 6.0, "warning"),
        ("stalled_seconds", 21.0, "critical"),
    ],
)
def test_ended_paused_or_stalled_writer_is_found(
    workspace, fact: str, value: float, severity: str
) -> None:
    with workspace.running({**HEALTHY_STORE, fact: value}):
        assert severities(workspace, "store.writer") == [severity]


# -- events and messages -------------------------------------------------------------------


def test_gap_at_the_start_of_the_event_log_is_found(workspace) -> None:
    workspace.event("x", event_id=5)
    assert severities(workspace, "events.sequence") == ["warning"]


def test_surplus_findings_are_only_counted(workspace) -> None:
    for number in range(1, 100, 2):
        workspace.event("x", event_id=number * 2)
    finding = workspace.find("events.sequence")
    assert len(finding) == FINDINGS_MAX + 1
    assert "more" in finding[-1].message


def test_hub_that_serves_another_database_is_found(workspace) -> None:
    with workspace.running():
        workspace.announce(db_id="another")
        assert severities(workspace, "hub.identity") == ["error"]


def test_messages_that_are_not_indexed_yet_have_no_findings(workspace) -> None:
    workspace.talk(3)
    workspace.index()
    workspace.talk(3)
    assert workspace.find("hub.search-in-step") == []


# -- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "revoked", "expected"),
    [(6.0, False, 1), (8.0, False, 0), (6.0, True, 0), (-1.0, False, 0), (None, False, 0)],
)
def test_token_that_expires_soon_is_found(
    workspace, days: float | None, revoked: bool, expected: int
) -> None:
    now_ms = SystemClock().now_ms()
    expires_ms = None if days is None else now_ms + int(days * 86_400_000)
    workspace.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms, expires_ms, revoked_ms)"
        " VALUES ('tok_1', 'a bot', 'h', '[]', 1, ?, ?)",
        expires_ms,
        2 if revoked else None,
        store="auth",
    )
    assert severities(workspace, "tokens.expiring") == ["warning"] * expected

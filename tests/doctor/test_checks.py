"""Each check: break the workspace, find it; and nothing is found where nothing is wrong."""

import os
import sqlite3
from types import SimpleNamespace

import pytest

from appliance.checks.check import FINDINGS_MAX, Severity
from appliance.kernel import store_declaration
from appliance.readiness import readiness_of
from tests.doctor.workspace import HEALTHY_STORE
from tests.support import shared_board
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
        (100 * GIB, 50 * GIB, ""),
        (100 * GIB, 60 * MIB, "critical"),
        (64 * MIB, 40 * MIB, "critical"),
        (0, 0, ""),
    ],
)
def test_low_disk_space_is_found(workspace, monkeypatch, total, free, severity):
    volume(monkeypatch, total, free)
    assert severities(workspace, "host.disk") == ([severity] if severity else [])


def test_free_space_that_writes_need_is_a_setting(workspace, monkeypatch) -> None:
    workspace.data.settings_file.write_text("[store]\nfree_bytes_min = 0\n")
    volume(monkeypatch, 64 * MIB, 40 * MIB)
    assert severities(workspace, "host.disk") == []


def test_missing_or_invalid_server_file_is_found(workspace) -> None:
    with workspace.running():
        workspace.data.write_private(workspace.data.server_file, "{")
        assert severities(workspace, "host.server-file") == ["warning"]
        workspace.data.server_file.unlink()
        assert severities(workspace, "host.server-file") == ["warning"]


@pytest.mark.parametrize(("delay", "expected"), [(0.4, []), (0.6, ["warning"]), (6.0, ["error"])])
def test_delayed_event_loop_is_found(workspace, delay: float, expected: list[str]) -> None:
    with workspace.running(loop_delay_seconds=delay):
        assert severities(workspace, "host.loop-delay") == expected


# -- stores --------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "expected"), [(99, []), (101, ["warning"]), (501, ["error"])])
def test_large_write_ahead_log_is_found(workspace, size: int, expected: list[str]) -> None:
    log = workspace.data.dir / "db.sqlite3-wal"
    with log.open("wb") as file:
        file.truncate(size * MIB)
    assert severities(workspace, "store.wal") == expected
    log.unlink()


def test_store_that_other_programs_write_is_checked_if_it_has_a_file(workspace, monkeypatch):
    monkeypatch.setitem(store_declaration.DECLARATIONS, "board", shared_board.DECLARED)
    monkeypatch.setattr("appliance.checks.context.SHARED_STORES", ("board",))
    assert severities(workspace, "store.integrity") == []
    path = workspace.data.database("board")
    shared_board.open_board(path, "FULL").close()
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
        ("stalled_seconds", 3.0, "warning"),
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

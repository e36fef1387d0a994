"""Each check: break the workspace, find it; and nothing is found where nothing is wrong."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.kernel.clock import SystemClock
from appliance.readiness import readiness_of
from appliance.workspace.migration import load
from doctor.check import Severity
from doctor.settings import DoctorSettings
from tests.doctor.workspace import HEALTHY_STORE, NOW, WorkspaceFixture

MIB = 1024 * 1024
GIB = 1024 * MIB


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFixture(tmp_path)


def severities(workspace, name: str) -> list[str]:
    return [finding.severity.value for finding in workspace.find(name)]


def volume(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    counted = SimpleNamespace(
        f_blocks=total // 4096, f_bavail=free // 4096, f_frsize=4096, f_flag=0
    )
    monkeypatch.setattr(os, "statvfs", lambda path: counted)


# -- silence -------------------------------------------------------------------------------


def test_new_workspace_has_no_findings(workspace) -> None:
    assert workspace.find_all() == []


def test_running_hub_has_no_findings(workspace) -> None:
    workspace.talk(20)
    with workspace.running():
        assert workspace.find_all() == []


def test_stopped_hub_has_no_findings(workspace) -> None:
    with workspace.running():
        workspace.talk()
        workspace.data.server_file.unlink()
    assert workspace.find_all() == []


def test_event_log_after_a_restore_has_no_findings(workspace) -> None:
    workspace.talk()
    workspace.event("m000000", event_id=3 + 2**32)
    workspace.event("m000001")
    assert workspace.find_all() == []


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


def test_workspace_of_another_program_has_only_a_note(
    tmp_path: Path,
) -> None:
    workspace = WorkspaceFixture(tmp_path / "ours")
    other = WorkspaceFixture(tmp_path / "other")
    for path in other.data.dir.iterdir():
        if path.is_file():
            path.unlink()
    with closing(sqlite3.connect(other.data.database("hub"))) as connection:
        connection.executescript(load("hub")[0].sql)
        facts = {"db_id": "theirs", "schema_version": "1", "created_at": NOW}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        connection.execute(
            "INSERT INTO events (ts, name, entity_type, entity_id, data_json)"
            " VALUES (?, 'hub.started', 'hub', 'x', '{}')",
            (NOW,),
        )
        connection.commit()
    os.chmod(other.data.dir, 0o755)
    other.talk()
    findings = other.find_all()
    assert {finding.severity for finding in findings} == {Severity.INFO}
    assert [finding.check for finding in findings] == ["store.schema"]
    assert workspace.find_all() == []


def test_legal_settings_have_no_findings(workspace, tmp_path: Path) -> None:
    secret = tmp_path / "scrape"
    secret.write_text("s")
    os.chmod(secret, 0o444)  # as container engines mount secrets
    workspace.data.settings_file.write_text(
        f'[auth]\nscrape_token_file = "{secret}"\n[http]\nport = 8080\n'
    )
    os.chmod(workspace.data.settings_file, 0o664)
    assert workspace.find_all() == []


def test_checks_do_not_change_the_files_after_a_crash(workspace) -> None:
    workspace.talk()
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(workspace.data.database("hub"), isolation_level=None)
        connection.execute("INSERT INTO meta VALUES ('only in', 'the log')")
        os._exit(0)
    os.waitpid(child, 0)
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


def test_data_directory_that_all_can_write_is_found(workspace) -> None:
    os.chmod(workspace.data.dir, 0o777)
    assert severities(workspace, "host.data-directory") == ["warning"]


def test_data_directory_that_is_not_writable_is_found(
    workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert severities(workspace, "host.data-directory") == ["error"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_token_that_others_can_read_is_found(workspace, mode: int) -> None:
    os.chmod(workspace.data.token_file, mode)
    (finding,) = workspace.find("host.token")
    assert finding.severity is Severity.ERROR
    assert finding.hint == f"chmod 600 {workspace.data.token_file}"
    os.chmod(workspace.data.token_file, 0o400)
    assert workspace.find("host.token") == []


def test_missing_or_empty_token_is_found(workspace) -> None:
    workspace.data.token_file.write_text("\n")
    assert severities(workspace, "host.token") == ["error"]
    workspace.data.token_file.unlink()
    assert severities(workspace, "host.token") == []
    with workspace.running():
        assert severities(workspace, "host.token") == ["warning"]


def test_lock_file_left_behind_is_a_note(workspace) -> None:
    workspace.data.lock_file.write_text('{"pid": 4194303, "instance_id": "gone"}')
    (finding,) = workspace.find("host.lock")
    assert finding.severity is Severity.INFO
    assert "4194303" in finding.message


def test_lock_file_removed_from_a_running_hub_is_critical(workspace) -> None:
    with workspace.running(lock_intact=False):
        assert severities(workspace, "host.lock") == ["critical"]


def test_server_file_left_behind_is_found(workspace) -> None:
    workspace.announce(pid=4194303)
    (finding,) = workspace.find("host.server-file")
    assert finding.severity is Severity.WARNING
    assert "4194303 has ended" in finding.message


def test_server_file_that_others_can_read_is_found(workspace) -> None:
    with workspace.running():
        os.chmod(workspace.data.server_file, 0o644)
        assert severities(workspace, "host.server-file") == ["error"]


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


@pytest.mark.parametrize("store", ["hub", "auth"])
def test_missing_store_is_found(workspace, store: str) -> None:
    workspace.data.database(store).unlink()
    (finding,) = workspace.find("store.opens")
    assert (finding.severity, finding.subject) == (Severity.ERROR, store)


@pytest.mark.parametrize("content", [b"", b"words, not pages" * 1000])
def test_store_that_can_not_be_opened_is_found(workspace, content: bytes) -> None:
    workspace.data.database("hub").write_bytes(content)
    assert severities(workspace, "store.opens") == ["error"]
    assert not [f for f in workspace.find_all() if "Traceback" in f.message]


def damage(workspace, table: str) -> None:
    workspace.talk(300)
    workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = workspace.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", table)
    with workspace.data.database("hub").open("r+b") as file:
        file.seek((int(str(root)) - 1) * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("name", ["store.whole", "store.integrity"])
def test_damaged_page_is_found(workspace, name: str) -> None:
    damage(workspace, "messages")
    assert "error" in severities(workspace, name)


def test_index_that_differs_from_its_table_is_found_by_the_full_check(workspace) -> None:
    workspace.talk(5)
    with closing(
        sqlite3.connect(workspace.data.database("hub"), isolation_level=None)
    ) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX idx_messages_created ON"
            " messages(sender)' WHERE name = 'idx_messages_created'"
        )
    assert workspace.find("store.whole") == []
    assert "error" in severities(workspace, "store.integrity")


def test_broken_foreign_key_is_found(workspace) -> None:
    workspace.talk()
    workspace.execute("UPDATE messages SET topic_id = 'nowhere' WHERE id = 'm000001'")
    (finding,) = workspace.find("store.integrity")
    assert finding.subject == "hub.messages"


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


def test_database_of_another_program_is_found(workspace) -> None:
    path = workspace.data.database("auth")
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    assert severities(workspace, "store.schema") == ["error"]


@pytest.mark.parametrize(("size", "expected"), [(99, []), (101, ["warning"]), (501, ["error"])])
def test_large_write_ahead_log_is_found(workspace, size: int, expected: list[str]) -> None:
    log = workspace.data.dir / "db.sqlite3-wal"
    with log.open("wb") as file:
        file.truncate(size * MIB)
    assert severities(workspace, "store.wal") == expected
    log.unlink()


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


def test_gap_in_the_event_log_is_found(workspace) -> None:
    workspace.talk()
    workspace.event("m000000", event_id=10)
    (finding,) = workspace.find("events.sequence")
    assert finding.severity is Severity.WARNING
    assert "between 3 and 10" in finding.message


def test_gap_at_the_start_of_the_event_log_is_found(workspace) -> None:
    workspace.event("x", event_id=5)
    assert severities(workspace, "events.sequence") == ["warning"]


def test_surplus_findings_are_only_counted(workspace) -> None:
    for number in range(1, 100, 2):
        workspace.event("x", event_id=number * 2)
    finding = workspace.find("events.sequence")
    assert len(finding) == workspace.settings.findings_max + 1
    assert "more" in finding[-1].message


def test_event_without_a_scope_is_found(workspace) -> None:
    workspace.talk()
    workspace.event("m000000", scope=None)
    (finding,) = workspace.find("events.scope")
    assert finding.subject == "event 4"


def test_message_without_its_event_and_event_without_its_message_are_found(workspace) -> None:
    workspace.talk()
    workspace.event("nothing")
    workspace.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
        " VALUES ('silent', 't_1', 'ch_1', 'me', '', ?)",
        NOW,
    )
    assert [finding.subject for finding in workspace.find("events.pairs")] == [
        "message silent",
        "message nothing",
    ]


def test_hub_without_a_database_id_is_found(workspace) -> None:
    workspace.execute("DELETE FROM meta WHERE key = 'db_id'")
    assert severities(workspace, "hub.identity") == ["error"]


def test_hub_that_serves_another_database_is_found(workspace) -> None:
    with workspace.running():
        workspace.announce(db_id="another")
        assert severities(workspace, "hub.identity") == ["error"]


def test_message_in_the_wrong_channel_is_found(workspace) -> None:
    workspace.talk()
    workspace.execute("UPDATE messages SET channel_id = 'ch_2' WHERE id = 'm000002'")
    (finding,) = workspace.find("hub.channels")
    assert finding.subject == "message m000002"


def test_missing_search_index_is_a_note(workspace) -> None:
    workspace.execute("DROP TRIGGER messages_fts_update")
    assert severities(workspace, "hub.search") == ["info"]
    assert workspace.find("hub.search-in-step") == []


def test_messages_that_are_not_indexed_yet_have_no_findings(workspace) -> None:
    workspace.talk(3)
    workspace.index()
    workspace.talk(3)
    assert workspace.find("hub.search-in-step") == []


def test_stale_search_index_is_found(workspace) -> None:
    workspace.talk()
    workspace.index()
    ((sql,),) = workspace.execute(
        "SELECT sql FROM sqlite_schema WHERE name = 'messages_fts_update'"
    )
    workspace.execute("DROP TRIGGER messages_fts_update")
    workspace.execute("UPDATE messages SET content_raw = 'edited'")
    workspace.execute(str(sql))
    workspace.talk(2)
    assert workspace.find("hub.search") == []
    (finding,) = workspace.find("hub.search-in-step")
    assert finding.severity is Severity.ERROR
    assert finding.hint == "agentlip doctor repair rebuild fts --yes"


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

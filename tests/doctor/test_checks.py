"""Each check: break the house, find it; and nothing is found where nothing is wrong."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.kernel.clock import SystemClock
from appliance.kernel.migration import load
from doctor.check import Severity
from doctor.settings import DoctorSettings
from tests.doctor.house import HEALTHY_STORE, NOW, House

MIB = 1024 * 1024
GIB = 1024 * MIB


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def severities(house: House, name: str) -> list[str]:
    return [finding.severity.value for finding in house.find(name)]


def volume(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    counted = SimpleNamespace(
        f_blocks=total // 4096, f_bavail=free // 4096, f_frsize=4096, f_flag=0
    )
    monkeypatch.setattr(os, "statvfs", lambda path: counted)


# -- silence -------------------------------------------------------------------------------


def test_a_new_workspace_is_healthy(house: House) -> None:
    assert house.find_all() == []


def test_a_running_hub_is_healthy(house: House) -> None:
    house.talk(20)
    with house.running():
        assert house.find_all() == []


def test_a_hub_that_was_stopped_is_healthy(house: House) -> None:
    with house.running():
        house.talk()
        house.data.server_file.unlink()
    assert house.find_all() == []


def test_a_restored_log_is_healthy(house: House) -> None:
    house.talk()
    house.event("m000000", event_id=3 + 2**32)
    house.event("m000001")
    assert house.find_all() == []


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
def test_a_volume_of_any_size_with_room_is_healthy(
    house: House, monkeypatch: pytest.MonkeyPatch, total: int, free: int
) -> None:
    volume(monkeypatch, total, free)
    assert house.find("host.disk") == []


def test_a_workspace_of_another_program_is_healthy_before_its_first_start(tmp_path: Path) -> None:
    house = House(tmp_path / "ours")
    other = House(tmp_path / "other")
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
    found = other.find_all()
    assert {finding.severity for finding in found} == {Severity.INFO}
    assert [finding.check for finding in found] == ["store.schema"]
    assert house.find_all() == []


def test_settings_that_may_be_are_healthy(house: House, tmp_path: Path) -> None:
    secret = tmp_path / "scrape"
    secret.write_text("s")
    os.chmod(secret, 0o444)  # as container engines mount secrets
    house.data.settings_file.write_text(
        f'[auth]\nscrape_token_file = "{secret}"\n[http]\nport = 8080\n'
    )
    os.chmod(house.data.settings_file, 0o664)
    assert house.find_all() == []


def test_looking_leaves_no_trace_on_what_a_crash_left(house: House) -> None:
    house.talk()
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(house.data.database("hub"), isolation_level=None)
        connection.execute("INSERT INTO meta VALUES ('only in', 'the log')")
        os._exit(0)
    os.waitpid(child, 0)
    kept = [house.data.database("hub"), house.data.dir / "db.sqlite3-wal"]
    before = [path.read_bytes() for path in kept]
    assert before[1]
    assert house.find_all() == []
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
def test_a_full_disk_is_found(
    house: House, monkeypatch: pytest.MonkeyPatch, total: int, free: int, severity: str
) -> None:
    volume(monkeypatch, total, free)
    assert severities(house, "host.disk") == [severity]


def test_disk_thresholds_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DoctorSettings(
        disk_warning_bytes=0, disk_warning_percent=0, disk_error_bytes=0, disk_error_percent=0
    )
    house = House(tmp_path, settings)
    volume(monkeypatch, 100 * GIB, GIB)
    assert house.find("host.disk") == []


def test_a_data_directory_open_to_all_is_found(house: House) -> None:
    os.chmod(house.data.dir, 0o777)
    assert severities(house, "host.data-directory") == ["warning"]


def test_a_data_directory_we_may_not_write_is_found(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert severities(house, "host.data-directory") == ["error"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_token_others_can_read_is_found(house: House, mode: int) -> None:
    os.chmod(house.data.token_file, mode)
    (finding,) = house.find("host.token")
    assert finding.severity is Severity.ERROR
    assert finding.hint == f"chmod 600 {house.data.token_file}"
    os.chmod(house.data.token_file, 0o400)
    assert house.find("host.token") == []


def test_a_token_that_is_gone_or_empty_is_found(house: House) -> None:
    house.data.token_file.write_text("\n")
    assert severities(house, "host.token") == ["error"]
    house.data.token_file.unlink()
    assert severities(house, "host.token") == []
    with house.running():
        assert severities(house, "host.token") == ["warning"]


def test_a_lock_left_behind_is_only_mentioned(house: House) -> None:
    house.data.lock_file.write_text('{"pid": 4194303, "instance_id": "gone"}')
    (finding,) = house.find("host.lock")
    assert finding.severity is Severity.INFO
    assert "4194303" in finding.sentence


def test_a_lock_taken_away_under_the_hub_is_critical(house: House) -> None:
    with house.running(lock_intact=False):
        assert severities(house, "host.lock") == ["critical"]


def test_a_server_file_left_behind_is_found(house: House) -> None:
    house.announce(pid=4194303)
    (finding,) = house.find("host.server-file")
    assert finding.severity is Severity.WARNING
    assert "4194303 is gone" in finding.sentence


def test_a_server_file_others_can_read_is_found(house: House) -> None:
    with house.running():
        os.chmod(house.data.server_file, 0o644)
        assert severities(house, "host.server-file") == ["error"]


def test_a_server_file_of_another_instance_is_found(house: House) -> None:
    with house.running():
        house.announce(instance_id="yesterday")
        assert severities(house, "host.server-file") == ["warning"]


def test_a_server_file_that_is_missing_or_rubbish_is_found(house: House) -> None:
    with house.running():
        house.data.write_private(house.data.server_file, "{")
        assert severities(house, "host.server-file") == ["warning"]
        house.data.server_file.unlink()
        assert severities(house, "host.server-file") == ["warning"]


def test_a_stopping_appliance_is_not_ready(house: House) -> None:
    with house.running(stopping=True):
        assert severities(house, "host.process") == ["critical"]


@pytest.mark.parametrize(("delay", "found"), [(0.4, []), (0.6, ["warning"]), (6.0, ["error"])])
def test_a_late_event_loop_is_found(house: House, delay: float, found: list[str]) -> None:
    with house.running(loop_delay_seconds=delay):
        assert severities(house, "host.loop-delay") == found


# -- settings ------------------------------------------------------------------------------


def test_settings_that_cannot_be_read_are_found(house: House) -> None:
    house.data.settings_file.write_text("[http\n")
    assert severities(house, "settings.file") == ["error"]
    assert house.find("settings.secrets") == []
    house.data.settings_file.write_bytes(b"\xff\xfe")
    assert severities(house, "settings.file") == ["error"]


def test_settings_everybody_can_change_are_found(house: House) -> None:
    house.data.settings_file.write_text("")
    os.chmod(house.data.settings_file, 0o666)
    assert severities(house, "settings.file") == ["warning"]


def test_a_secret_that_is_not_there_or_open_is_found(house: House, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    house.data.settings_file.write_text(f'[auth]\nscrape_token_file = "{secret}"\n')
    (finding,) = house.find("settings.secrets")
    assert finding.severity is Severity.ERROR
    assert finding.subject == "auth.scrape_token_file"
    secret.touch()
    os.chmod(secret, 0o666)
    assert severities(house, "settings.secrets") == ["warning"]


# -- stores --------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["hub", "auth"])
def test_a_missing_store_is_found(house: House, store: str) -> None:
    house.data.database(store).unlink()
    (finding,) = house.find("store.opens")
    assert (finding.severity, finding.subject) == (Severity.ERROR, store)


@pytest.mark.parametrize("content", [b"", b"words, not pages" * 1000])
def test_a_store_that_does_not_open_is_found(house: House, content: bytes) -> None:
    house.data.database("hub").write_bytes(content)
    assert severities(house, "store.opens") == ["error"]
    assert not [f for f in house.find_all() if "Traceback" in f.sentence]


def damage(house: House, table: str) -> None:
    house.talk(300)
    house.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = house.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", table)
    with house.data.database("hub").open("r+b") as file:
        file.seek((int(str(root)) - 1) * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize("name", ["store.whole", "store.integrity"])
def test_a_damaged_page_is_found(house: House, name: str) -> None:
    damage(house, "messages")
    assert "error" in severities(house, name)


def test_an_index_that_lost_an_entry_is_found_by_the_long_look(house: House) -> None:
    house.talk(5)
    with closing(sqlite3.connect(house.data.database("hub"), isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX idx_messages_created ON"
            " messages(sender)' WHERE name = 'idx_messages_created'"
        )
    assert house.find("store.whole") == []
    assert "error" in severities(house, "store.integrity")


def test_a_broken_foreign_key_is_found(house: House) -> None:
    house.talk()
    house.execute("UPDATE messages SET topic_id = 'nowhere' WHERE id = 'm000001'")
    (finding,) = house.find("store.integrity")
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
def test_a_schema_that_does_not_fit_is_found(house: House, sql: str, severity: str) -> None:
    house.execute(sql)
    assert severities(house, "store.schema") == [severity]


def test_a_database_of_something_else_is_found(house: House) -> None:
    path = house.data.database("auth")
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    assert severities(house, "store.schema") == ["error"]


@pytest.mark.parametrize(("size", "found"), [(99, []), (101, ["warning"]), (501, ["error"])])
def test_a_long_log_is_found(house: House, size: int, found: list[str]) -> None:
    log = house.data.dir / "db.sqlite3-wal"
    with log.open("wb") as file:
        file.truncate(size * MIB)
    assert severities(house, "store.wal") == found
    log.unlink()


def test_a_suspect_store_is_critical(house: House) -> None:
    house.data.suspect_file("hub").touch()
    (finding,) = house.find("store.suspect")
    assert finding.severity is Severity.CRITICAL
    assert finding.hint == "agentlip doctor clear hub"
    house.data.suspect_file("hub").unlink()
    with house.running({**HEALTHY_STORE, "suspect": 1.0}):
        assert severities(house, "store.suspect") == ["critical"]


@pytest.mark.parametrize(
    ("fact", "value", "severity"),
    [
        ("writer_alive", 0.0, "critical"),
        ("writing_paused", 1.0, "error"),
        ("stalled_seconds", 6.0, "warning"),
        ("stalled_seconds", 21.0, "critical"),
    ],
)
def test_a_writer_that_cannot_work_is_found(
    house: House, fact: str, value: float, severity: str
) -> None:
    with house.running({**HEALTHY_STORE, fact: value}):
        assert severities(house, "store.writer") == [severity]


# -- events and messages -------------------------------------------------------------------


def test_a_hole_in_the_log_is_found(house: House) -> None:
    house.talk()
    house.event("m000000", event_id=10)
    (finding,) = house.find("events.sequence")
    assert finding.severity is Severity.WARNING
    assert "between 3 and 10" in finding.sentence


def test_a_hole_at_the_beginning_is_found(house: House) -> None:
    house.event("x", event_id=5)
    assert severities(house, "events.sequence") == ["warning"]


def test_many_findings_of_a_kind_are_counted(house: House) -> None:
    for number in range(1, 100, 2):
        house.event("x", event_id=number * 2)
    found = house.find("events.sequence")
    assert len(found) == house.settings.findings_max + 1
    assert "more" in found[-1].sentence


def test_an_event_without_a_scope_is_found(house: House) -> None:
    house.talk()
    house.event("m000000", scope=None)
    (finding,) = house.find("events.scope")
    assert finding.subject == "event 4"


def test_a_message_without_its_event_and_the_other_way_round_are_found(house: House) -> None:
    house.talk()
    house.event("nothing")
    house.execute(
        "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
        " VALUES ('silent', 't_1', 'ch_1', 'me', '', ?)",
        NOW,
    )
    assert [finding.subject for finding in house.find("events.pairs")] == [
        "message silent",
        "message nothing",
    ]


def test_a_hub_without_an_identity_is_found(house: House) -> None:
    house.execute("DELETE FROM meta WHERE key = 'db_id'")
    assert severities(house, "hub.identity") == ["error"]


def test_a_hub_that_serves_another_database_is_found(house: House) -> None:
    with house.running():
        house.announce(db_id="another")
        assert severities(house, "hub.identity") == ["error"]


def test_a_message_in_the_wrong_channel_is_found(house: House) -> None:
    house.talk()
    house.execute("UPDATE messages SET channel_id = 'ch_2' WHERE id = 'm000002'")
    (finding,) = house.find("hub.channels")
    assert finding.subject == "message m000002"


def test_a_lost_index_is_only_mentioned(house: House) -> None:
    house.execute("DROP TRIGGER messages_fts_update")
    assert severities(house, "hub.search") == ["info"]
    assert house.find("hub.search-in-step") == []


def test_messages_not_yet_indexed_are_no_fault(house: House) -> None:
    house.talk(3)
    house.index()
    house.talk(3)
    assert house.find("hub.search-in-step") == []


def test_an_index_out_of_step_is_found_and_mended_by_the_hint(house: House) -> None:
    house.talk()
    house.index()
    ((sql,),) = house.execute("SELECT sql FROM sqlite_schema WHERE name = 'messages_fts_update'")
    house.execute("DROP TRIGGER messages_fts_update")
    house.execute("UPDATE messages SET content_raw = 'edited'")
    house.execute(str(sql))
    house.talk(2)
    assert house.find("hub.search") == []
    (finding,) = house.find("hub.search-in-step")
    assert finding.severity is Severity.ERROR
    command = re.search("'(DROP TABLE .*?)'", finding.hint)
    assert command is not None
    house.execute(command[1])
    assert severities(house, "hub.search") == ["info"]
    house.start()
    assert house.find("hub.search") == house.find("hub.search-in-step") == []


# -- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "revoked", "found"),
    [(6.0, False, 1), (8.0, False, 0), (6.0, True, 0), (-1.0, False, 0), (None, False, 0)],
)
def test_a_token_that_ends_soon(
    house: House, days: float | None, revoked: bool, found: int
) -> None:
    now_ms = SystemClock().now_ms()
    expires_ms = None if days is None else now_ms + int(days * 86_400_000)
    house.execute(
        "INSERT INTO tokens (id, name, hash, scopes, created_ms, expires_ms, revoked_ms)"
        " VALUES ('tok_1', 'a bot', 'h', '[]', 1, ?, ?)",
        expires_ms,
        2 if revoked else None,
        store="auth",
    )
    assert severities(house, "tokens.expiring") == ["warning"] * found

"""`agentlip doctor` as people and scripts use it, beside a process that answers or does not."""

import http.server
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from doctor import run
from doctor.cli import app
from tests.doctor.house import HEALTHY_STORE, House, ready_body

INSTANCE = "instance-1"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def doctor(house: House | None, *arguments: str) -> Any:
    where = [] if house is None else ["--workspace", str(house.data.workspace)]
    return CliRunner().invoke(app, [*where, *arguments], catch_exceptions=False)


@contextmanager
def answering(house: House, body: bytes | None = None, status: int = 200) -> Iterator[list[str]]:
    """A hub's port that answers /-/ready from the same table, or with `body`."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization')}")
            with house.context() as context:
                ready = ready_body(context, INSTANCE)
            text = msgspec.json.encode(ready) if body is None else body
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        house.announce(port=server.server_port, pid=os.getpid())
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# -- output and exit codes -----------------------------------------------------------------


def test_a_healthy_workspace_is_a_table_and_a_summary(house: House) -> None:
    house.talk(4)
    result = doctor(house)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Agentlip doctor ")
    assert any(line.startswith("Events:") and "last 4 at 2026" in line for line in lines)
    assert lines[-1] == f"Summary: 0 warnings, 0 errors ({len(run.select([], False))} checks)"
    assert all(line.startswith("[ok]") for line in lines if line.startswith("["))


def test_quiet_says_nothing_when_all_is_well_and_only_the_trouble_else(house: House) -> None:
    house.data.lock_file.write_text("{}")
    assert doctor(house, "--quiet").stdout == ""
    os.chmod(house.data.token_file, 0o644)
    result = doctor(house, "--quiet")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[0].startswith("[bad]  host.token")
    assert len(result.stdout.splitlines()) == 2


def test_the_log_is_folded_back_by_hand_beside_who_reads(house: House) -> None:
    database = house.data.database("hub")
    log = database.with_name(database.name + "-wal")
    with closing(sqlite3.connect(database, isolation_level=None)) as somebody:
        somebody.execute("PRAGMA journal_mode = WAL").fetchall()
        somebody.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        house.talk(50)
        assert log.stat().st_size > 0
        result = doctor(house, "--checkpoint")
        assert result.exit_code == 0
        assert "hub: 0 bytes of log are left" in result.stderr
        assert log.stat().st_size == 0
        assert somebody.execute("SELECT count(*) FROM messages").fetchone() == (50,)


def test_warnings_count_only_when_strict(house: House) -> None:
    house.event("x", event_id=7)
    assert doctor(house).exit_code == 0
    assert doctor(house, "--strict").exit_code == 1


def test_json_is_all_there_is_on_standard_output(house: House) -> None:
    os.chmod(house.data.token_file, 0o644)
    result = doctor(house, "--json", "--all")
    assert result.exit_code == 2
    value = json.loads(result.stdout)
    assert value["verdict"] == "error"
    assert (value["warnings"], value["errors"]) == (0, 1)
    (bad,) = [each for each in value["checks"] if each["findings"]]
    assert bad["check"] == "host.token"
    assert bad["findings"][0]["severity"] == "error"
    assert bad["findings"][0]["hint"].startswith("chmod 600")
    assert len(value["checks"]) == len(run.select([], True))


def test_only_the_checks_named_are_run(house: House) -> None:
    os.chmod(house.data.token_file, 0o644)
    value = json.loads(doctor(house, "--json", "--run", "hub.search, store.integrity").stdout)
    assert [each["check"] for each in value["checks"]] == ["store.integrity", "hub.search"]


def test_the_list_needs_no_workspace() -> None:
    lines = doctor(None, "--list").stdout.splitlines()
    assert len(lines) == len(run.CHECKS)
    assert len(json.loads(doctor(None, "--list", "--json").stdout)) == len(lines)


@pytest.mark.parametrize("arguments", [["--run", "nothing"], ["clear", "nothing"]])
def test_what_does_not_exist_could_not_run(house: House, arguments: list[str]) -> None:
    result = doctor(house, *arguments)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "Hint:" in result.stderr


def test_without_a_workspace_it_could_not_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--workspace", str(tmp_path / "x"), "--json"])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "agentlip init" in json.loads(result.stderr)["hint"]


def test_thresholds_come_from_the_settings_and_other_sections_do_not_matter(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.data.settings_file.write_text(
        "[doctor]\nwal_warning_bytes = 10\n[http]\nwhatever = 1\n[hub]\nx = 2\n"
    )
    log = house.data.dir / "db.sqlite3-wal"
    log.write_bytes(b"0" * 20)
    assert doctor(house, "--strict", "--run", "store.wal").exit_code == 1
    monkeypatch.setenv("AGENTLIP_DOCTOR__WAL_WARNING_BYTES", "1000")
    assert doctor(house, "--strict", "--run", "store.wal").exit_code == 0
    log.unlink()
    house.data.settings_file.write_text("[doctor]\nnonsense = 10\n")
    result = doctor(house)
    assert result.exit_code == 0
    assert "the doctor's defaults are used" in result.stderr


# -- beside a running hub ------------------------------------------------------------------


def test_the_running_process_is_asked_for_its_facts(house: House) -> None:
    with (
        house.running({**HEALTHY_STORE, "stalled_seconds": 7.0}, loop_delay_seconds=0.7),
        answering(house) as asked,
    ):
        result = doctor(house, "--json")
    value = json.loads(result.stdout)
    assert {each["check"] for each in value["checks"] if each["findings"]} == {
        "host.loop-delay",
        "store.writer",
    }
    assert value["facts"]["running"] is True
    assert value["facts"]["instance_id"] == INSTANCE
    assert asked == [f"/-/ready Bearer {house.data.read_token()}"]


def test_facts_of_a_process_that_is_not_ready_count_too(house: House) -> None:
    with house.running({**HEALTHY_STORE, "writer_alive": 0.0}):
        with house.context() as context:
            body = msgspec.json.encode(ready_body(context, INSTANCE))
        with answering(house, body, status=503):
            result = doctor(house, "--quiet")
    assert result.exit_code == 2
    assert "its writer has ended" in result.stdout


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "answers something else"),
        (b'{"status": "ready"}', "without details"),
        (b'{"status": "ready", "instance_id": "other", "facts": {}}', "another instance"),
    ],
)
def test_an_answer_that_is_not_our_hubs_is_said(house: House, body: bytes, why: str) -> None:
    with house.running(), answering(house, body):
        result = doctor(house, "--quiet")
    assert result.exit_code == 2
    assert "host.process" in result.stdout
    assert why in result.stdout


@pytest.mark.parametrize(
    ("said", "why"),
    [({"port": 1}, "port 1"), ({"port": 0}, "no port"), ({"host": "192.0.2.1"}, "192.0.2.1")],
)
def test_a_process_that_cannot_be_asked_is_said(
    house: House, said: dict[str, object], why: str
) -> None:
    with house.running():
        house.announce(**said)
        result = doctor(house, "--quiet")
    assert result.exit_code == 2
    assert "can't be asked" in result.stdout
    assert why in result.stdout


# -- clearing a suspect store --------------------------------------------------------------


def test_a_whole_store_is_cleared_and_starts_again(house: House) -> None:
    house.talk(50)
    house.data.suspect_file("hub").write_text("SQLITE_CORRUPT\n")
    result = doctor(house, "clear", "hub")
    assert result.exit_code == 0
    assert "no longer suspect" in result.stdout
    assert not house.data.suspect_file("hub").exists()
    again = doctor(house, "--json", "clear", "hub")
    assert json.loads(again.stdout) == {"store": "hub", "cleared": False}


def test_a_damaged_store_stays_suspect(house: House) -> None:
    house.talk(300)
    house.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ((root,),) = house.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'messages'")
    with house.data.database("hub").open("r+b") as file:
        file.seek((int(str(root)) - 1) * 4096)
        file.write(b"\xff" * 4096)
    house.data.suspect_file("hub").touch()
    result = doctor(house, "clear", "hub")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert ".agentlip/backups" in result.stderr
    assert house.data.suspect_file("hub").exists()
    house.data.database("hub").unlink()
    assert doctor(house, "clear", "hub").exit_code == 2
    assert house.data.suspect_file("hub").exists()

"""A store that lacks commits is refused by name, and its loss can be accepted."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.audit.log import file as audit_file
from appliance.audit.log.record import AuditRecord
from appliance.kernel import commit_count
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.workspace import manifest
from appliance.workspace.datadir import BESIDE, DataDir
from tests.doctor.used import use
from tests.http.kernel.test_manifest import served_with
from tests.support.bus import BusFixture
from tests.support.commands import agentlip, start_that_ends, succeed
from tests.support.database_files import execute, overwrite
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
EXIT_CONFLICT = 2
NUMBERED = sorted(set(DECLARATIONS) - {"hub", "relay", "audit", "bus"})


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A used workspace that was killed, in which each store had a log."""
    path = tmp_path_factory.mktemp("killed") / "w"
    use(path)
    shutil.copytree(path / ".agentlip", path / "before")
    hub = ServedHub(path, "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        hub.made(hub.http.post("/api/v1/tokens", {"name": "later", "scopes": ["hub:read"]}))
    return path


@pytest.fixture
def workspace(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "w", symlinks=True)
    return tmp_path / "w"


def findings(workspace: Path, check: str = "store.record,store.log") -> list[dict[str, str]]:
    answer = agentlip("doctor", "--json", "--run", check, cwd=workspace)
    return [each for row in json.loads(answer.out)["checks"] for each in row["findings"]]


def put_older_file_back(datadir: DataDir, store: str) -> None:
    database = datadir.database(store)
    for suffix in BESIDE:
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.copy(datadir.workspace / "before" / database.name, database)
    number = "UPDATE meta SET value = value - 1 WHERE key = ?"
    execute(database, number, commit_count.KEY)  # also where nothing happened meanwhile


def remove_log(datadir: DataDir, store: str) -> None:
    database = datadir.database(store)
    for suffix in BESIDE:
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def damage_log(datadir: DataDir, store: str) -> None:
    log = datadir.database(store).with_name("auth.sqlite3-wal")
    overwrite(log, 32 + 24 + 100, b"flipped")


def is_refused(workspace: Path, store: str) -> None:
    refused = start_that_ends(workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert f"Error: {store}:" in refused.err
    assert f"agentlipd up --accept-loss {store}" in refused.err


def is_accepted(workspace: Path, store: str) -> None:
    served_with(workspace, "--accept-loss", store).stop()
    assert not manifest.lost_stores(DataDir(workspace), "unused", tuple(DECLARATIONS))
    served_with(workspace).stop()


@pytest.mark.parametrize("lose", [remove_log, damage_log, put_older_file_back])
def test_lost_commits_of_tokens_are_missed(
    lose: Callable[[DataDir, str], None], workspace: Path
) -> None:
    lose(DataDir(workspace), "auth")
    first = findings(workspace)[0]
    assert (first["check"], first["problem"]) == ("store.record", "behind")
    assert "auth.sqlite3 ends with commit" in first["sentence"]
    before = DataDir(workspace).database("auth").read_bytes()
    is_refused(workspace, "auth")
    assert DataDir(workspace).database("auth").read_bytes() == before
    is_accepted(workspace, "auth")


@pytest.mark.parametrize("store", NUMBERED)
def test_older_file_of_any_store_is_refused(workspace: Path, store: str) -> None:
    put_older_file_back(DataDir(workspace), store)
    [error] = manifest.lost_stores(DataDir(workspace), "unused")
    assert error.details == {
        "store": store, "file": f"{store}.sqlite3", "problem": "behind"
    }  # fmt: skip
    is_refused(workspace, store)


def test_lost_audit_records_and_bus_messages_are_missed(workspace: Path) -> None:
    datadir = DataDir(workspace)
    bus, audit = datadir.database("bus"), datadir.database("audit")
    execute(audit, "DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)")
    execute(audit, "UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'log'")
    is_refused(workspace, "audit")
    is_accepted(workspace, "audit")
    record = AuditRecord(0, 1, "POST /a", "done", None, "s", "http", "{}")
    noted = commit_count.read(workspace, "audit")
    assert noted is not None
    assert audit_file.append(audit, record) == noted.number + 1

    hub = ServedHub(workspace, "--no-limits")
    with hub.running():
        message = {"from_agent": "lead", "type": "note", "payload": {}}
        assert hub.http.post("/bus/v1/messages", message).status == 201
    execute(bus, "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'messages'")
    is_refused(workspace, "bus")
    is_accepted(workspace, "bus")
    fixture = BusFixture(workspace)
    assert fixture.send().seq > 2**32
    fixture.connection.close()


def test_restore_and_recovery_begin_with_the_number_of_their_file(workspace: Path) -> None:
    succeed("backup", "create", cwd=workspace)
    hub = ServedHub(workspace, "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        for name in "abc":
            hub.made(hub.http.post("/api/v1/tokens", {"name": name, "scopes": ["hub:read"]}))
    succeed("backup", "restore", "--latest", "--store", "auth", "--yes", cwd=workspace)
    with hub.running():
        assert findings(workspace) == []
    succeed("backup", "restore", "--latest", "--yes", cwd=workspace)
    with hub.running():
        assert findings(workspace) == []


def test_unreadable_record_is_found_and_no_store_is_made_empty(workspace: Path) -> None:
    datadir = DataDir(workspace)
    (datadir.dir / manifest.FILE).write_text("{")
    (datadir.dir / "newest-event").write_text("?")
    datadir.database("inbox").unlink()
    assert {(each["subject"], each["problem"]) for each in findings(workspace)} >= {
        ("stores.json", "unreadable"), ("newest-event", "unreadable"),
    }  # fmt: skip
    refused = start_that_ends(workspace)
    assert refused.code == EXIT_CONFLICT, refused
    assert "stores.json, can't be read" in refused.err
    (datadir.dir / manifest.FILE).unlink()
    is_refused(workspace, "inbox")
    assert not datadir.database("inbox").exists()

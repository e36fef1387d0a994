"""`recover` saves the worker bus and the audit log too, whose files other programs write."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.audit.log import file as audit_file
from appliance.audit.log.record import AuditRecord
from appliance.busfile import claims
from appliance.busfile.file import BusPaths, connect
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.workspace.datadir import DataDir
from appliance.workspace.open_files import StoreInUse
from tests.doctor.conversation import content
from tests.support.bus import NOW, BusFixture
from tests.support.commands import agentlip
from tests.support.damage import first_page_zeroed, leaf_of, recovered
from tests.support.database_files import execute

KEEP_OPEN = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
    "c.execute('BEGIN'); c.execute('SELECT 1 FROM meta').fetchone(); print(flush=True);"
    "sys.stdin.read()"
)


def fold(database: Path) -> None:
    execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def datadir(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path / "ws")
    for folder in ("locks", "backups"):
        (made.dir / folder).mkdir(parents=True)
    bus = BusFixture(made.workspace)
    for number in range(300):
        bus.send(f"agent-{number % 7}", payload={"number": number}, now=NOW)
    for number in range(5):
        bus.run(claims.claim, NOW, f"path:src/{number}", "lexer", 600_000)
    bus.connection.close()
    for number in range(300):
        record = AuditRecord(0, number, f"POST /{number}", "done", None, "server", "http", "{}")
        audit_file.append(made.database("audit"), record)
    for store in ("bus", "audit"):
        fold(made.database(store))
    return made


def test_every_declared_store_is_a_name_that_recover_knows(datadir: DataDir) -> None:
    for store in DECLARATIONS:
        done = agentlip("recover", store, cwd=datadir.workspace)
        assert "unknown store" not in done.err, done


@pytest.mark.parametrize("store", ["bus", "audit"])
def test_shared_store_without_its_first_page_is_saved_completely(
    datadir: DataDir, store: str
) -> None:
    database = datadir.database(store)
    before, schema = content(database), execute(database, "SELECT name FROM sqlite_schema")
    first_page_zeroed(database)
    report = recovered(datadir, store)
    assert report.complete, report
    after = content(database)
    assert {name: rows for name, rows in after.items() if name != "meta"} == {
        name: rows for name, rows in before.items() if name != "meta"
    }
    assert sorted(execute(database, "SELECT name FROM sqlite_schema")) == sorted(schema)
    if store == "audit":
        assert not audit_file.verify(database).broken


def test_recovered_bus_goes_on_with_its_numbers_and_is_not_called_replaced(
    datadir: DataDir,
) -> None:
    first_page_zeroed(datadir.database("bus"))
    recovered(datadir, "bus")
    bus = BusFixture(datadir.workspace)
    assert bus.send("later").seq == 301
    assert bus.rows("SELECT fence FROM x_fences") == [(1,)] * 5
    assert bus.rows("SELECT 1 FROM meta WHERE key = 'x_replaced_ms'") == []
    bus.connection.close()


def test_damaged_page_of_the_audit_log_loses_only_its_records(datadir: DataDir) -> None:
    database = datadir.database("audit")
    leaf_of("log")(database)
    report = recovered(datadir, "audit")
    assert 0 < report.tables["log"].lost < 100
    assert audit_file.verify(database).broken, "the gap is not hidden"
    audit_file.append(database, AuditRecord(0, 1, "POST /a", "done", None, "s", "http", "{}"))
    assert execute(database, "SELECT max(seq) FROM log") == [(301,)]


def test_bus_that_another_program_uses_is_not_replaced(datadir: DataDir) -> None:
    database = datadir.database("bus")
    leaf_of("messages")(database)
    spoiled = database.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", KEEP_OPEN, str(database)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        program.stdout.readline()
        with pytest.raises(StoreInUse, match=f"pid {program.pid}"):
            recovered(datadir, "bus")
        program.communicate()
    assert database.read_bytes() == spoiled
    assert recovered(datadir, "bus").tables["messages"].read > 100
    connect(BusPaths(datadir.workspace)).close()

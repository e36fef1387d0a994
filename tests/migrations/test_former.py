"""From every schema that ever was on the main branch to the newest, with files of those programs.

`former/` has a workspace of each, written by the program itself.
"""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.migration import load
from appliance.workspace.schema import MigrationEdited
from tests.support.commands import agentlip
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow
FORMER = sorted((Path(__file__).parent / "former").glob("*.tar.xz"))
EDITED = {"07-c9a2380", "08-f14cdf4"}
"""Their first migration of the broker was changed within the hour, before any version had a name.
They are refused and not changed."""
OURS = ("meta", "x_migrations", "sqlite_sequence")
OF_AGE = ("outbox.waiting", "backup.")
"""Checks that rightly warn of a send, and of a backup, that is as old as the workspace."""
Tables = dict[str, list[tuple[object, ...]]]


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


def workspace_of(archive: Path, folder: Path) -> DataDir:
    with tarfile.open(archive) as opened:
        opened.extractall(folder)
    return DataDir(folder)


def opened(path: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True))


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def shape(datadir: DataDir) -> dict[str, list[str]]:
    """The columns of each table that has data of users."""
    shapes = {}
    for store in STORES:
        if not datadir.database(store).exists():
            continue
        with opened(datadir.database(store)) as connection:
            tables = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%fts%'"
                " AND name NOT LIKE 'x!_%' ESCAPE '!'"
            ).fetchall()
            for (table,) in tables:
                if table not in OURS:
                    shapes[f"{store}.{table}"] = columns(connection, table)
    return shapes


def contents(datadir: DataDir, shapes: dict[str, list[str]]) -> Tables:
    rows: Tables = {}
    for name, wanted in shapes.items():
        store, _, table = name.partition(".")
        with opened(datadir.database(store)) as connection:
            names = ", ".join(f'"{column}"' for column in wanted)
            rows[name] = connection.execute(f'SELECT {names} FROM "{table}" ORDER BY 1').fetchall()
    return rows


@pytest.mark.parametrize("archive", FORMER, ids=name_of)
def test_workspace_of_every_former_program_is_migrated_with_its_data(
    archive: Path, tmp_path: Path
) -> None:
    datadir = workspace_of(archive, tmp_path / "ws")
    shapes = shape(datadir)
    before = contents(datadir, shapes)
    assert before["hub.messages"]
    done = agentlip("migrate", "--apply", "--yes", "--json", cwd=datadir.workspace)
    if name_of(archive) in EDITED:
        assert done.code == 2, done
        assert json.loads(done.err)["hint"] == MigrationEdited.default_hint
        assert contents(datadir, shapes) == before
        return
    assert done.code == 0, done
    assert contents(datadir, shapes) == before
    assert bool(done.json["backup"]) == bool(done.json["migrated"])
    hub = HubProcess(datadir.workspace)  # creates the stores that the former program did not have
    hub.start()
    try:
        replayed = [event["event_id"] for event in hub.events()]
        matches = hub.request("GET", "/api/v1/search?q=build")
    finally:
        assert hub.stop() == 0
    assert replayed[: len(before["hub.events"])] == [row[0] for row in before["hub.events"]]
    assert matches["messages"]
    checked = agentlip("doctor", "--all", "--json", cwd=datadir.workspace).json["checks"]
    findings = [each for check in checked for each in check.get("findings", ())]
    assert [each for each in findings if not each["check"].startswith(OF_AGE)] == []


def test_newest_workspace_has_every_step_but_the_last(tmp_path: Path) -> None:
    """So a new migration comes with a workspace of the program before it, which can be written only
    while its code runs."""
    datadir = workspace_of(FORMER[-1], tmp_path / "ws")
    former = [store for store in STORES if datadir.database(store).exists()]
    assert "hub" in former
    for store in former:
        with opened(datadir.database(store)) as connection:
            recorded = dict(connection.execute("SELECT name, sha256 FROM x_migrations"))
        released = {each.name: each.sha256 for each in load(store)}
        assert {name: released.get(name) for name in recorded} == recorded
        lacking = [name for name in released if name not in recorded]
        assert len(lacking) <= 1, f"add a workspace of the commit before: {lacking}"


@pytest.mark.parametrize("archive", [FORMER[0], FORMER[9]], ids=name_of)
def test_no_check_fails_in_a_workspace_that_is_not_migrated_yet(archive, tmp_path):
    datadir = workspace_of(archive, tmp_path)
    checks = json.loads(agentlip("doctor", "--all", "--json", cwd=datadir.workspace).out)["checks"]
    findings = [finding for check in checks for finding in check["findings"]]
    assert [each for each in findings if each["problem"] == "failed"] == []
    assert "old" in {each["problem"] for each in findings}
    assert not [each for each in findings if "--accept-loss" in each["hint"]]

"""The checks of permissions, owners and logs in the data directory, and of the clock."""

import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace

import pytest

from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.steady_clock import ClockNote, ClockReading, encode
from appliance.workspace.migration import load
from doctor.checks import host_files
from tests.doctor.workspace import NOW, WorkspaceFixture

DAY_MS = int(timedelta(days=1).total_seconds() * 1000)


def found_by(workspace: WorkspaceFixture, name: str) -> list[tuple[str, str, str]]:
    return [(each.severity.value, each.subject, each.problem) for each in workspace.find(name)]


# -- permissions -------------------------------------------------------------------------------


def give_to_group(monkeypatch: pytest.MonkeyPatch, name: str, *members: str) -> None:
    owner = SimpleNamespace(pw_name="anna")
    group = SimpleNamespace(gr_name=name, gr_mem=list(members))
    monkeypatch.setattr(host_files.pwd, "getpwuid", lambda _uid: owner)
    monkeypatch.setattr(host_files.grp, "getgrgid", lambda _gid: group)


@pytest.mark.parametrize(
    ("name", "members", "subjects"),
    [
        ("anna", (), []),
        ("anna", ("anna",), []),
        ("anna", ("anna", "bert"), [".agentlip", ".agentlip/db.sqlite3"]),
        ("staff", (), [".agentlip", ".agentlip/db.sqlite3"]),
    ],
)
def test_group_of_the_owner_alone_may_have_rights(
    workspace,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: tuple[str, ...],
    subjects: list[str],
) -> None:
    give_to_group(monkeypatch, name, *members)
    workspace.data.dir.chmod(0o770)
    workspace.data.database("hub").chmod(0o660)
    assert [(severity, each) for severity, each, _ in found_by(workspace, "host.private")] == [
        ("error", each) for each in subjects
    ]


def test_umask_of_a_private_group_still_lets_others_read(
    workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mkdir .agentlip` makes it with `umask 002`: they can't change it."""
    give_to_group(monkeypatch, "anna")
    workspace.data.dir.chmod(0o775)
    assert found_by(workspace, "host.private") == [("warning", ".agentlip", "too-open")]


def test_files_of_another_program_are_only_mentioned(workspace) -> None:
    workspace.data.database("hub").unlink()
    with closing(sqlite3.connect(workspace.data.database("hub"))) as connection:
        connection.executescript(load("hub")[0].sql)
        facts = {"db_id": "theirs", "schema_version": "1", "created_at": NOW}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        connection.commit()
    workspace.data.dir.chmod(0o755)
    workspace.data.database("hub").chmod(0o644)
    assert {severity for severity, _, _ in found_by(workspace, "host.private")} == {"info"}


# -- owners ------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("stores", "named"),
    [
        (("auth",), ["auth"]),
        (("hub", "inbox"), ["hub", "inbox"]),
        (("auth", "broker", "courier", "hub"), [".agentlip"]),
    ],
)
def test_stores_of_another_user_are_found_once(
    workspace, stores: tuple[str, ...], named: list[str]
) -> None:
    for store in stores:
        os.chown(workspace.data.database(store), 12_345, -1)
    assert found_by(workspace, "host.owner") == [("error", name, "other-owner") for name in named]
    for finding in workspace.find("host.owner"):
        assert os.system(finding.hint) == 0
    assert workspace.find("host.owner") == []


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "expected"),
    [
        (0o600, 7, 9, True),
        (0o400, 7, 9, False),
        (0o060, 8, 9, True),
        (0o060, 8, 10, False),
        (0o006, 8, 10, True),
        (0o640, 8, 9, False),
    ],
)
def test_rights_by_mode(mode: int, uid: int, gid: int, expected: bool) -> None:
    state = os.stat_result((0o100000 | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))
    may = host_files.may_use(state, 7, frozenset({9}), os.R_OK | os.W_OK)
    assert may is expected


# -- logs --------------------------------------------------------------------------------------


# -- clock -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jump_ms", "ago_ms", "expected"),
    [(60_000, 1000, ["info"]), (-2 * 3_600_000, 1000, ["warning"]), (60_000, 2 * DAY_MS, [])],
)
def test_a_clock_that_was_set_is_found(
    workspace, jump_ms: int, ago_ms: int, expected: list[str]
) -> None:
    now_ms = SystemClock().now_ms()
    reading = ClockReading(now_ms, 1, "another boot")
    note = ClockNote(reading, jump_ms, iso(now_ms - ago_ms))
    workspace.execute(
        "INSERT OR REPLACE INTO meta VALUES ('clock', ?)", encode(note), store="outbox"
    )
    findings = found_by(workspace, "host.clock")
    assert findings == [(severity, "clock", "jumped") for severity in expected]


def test_a_jump_that_nobody_noted_is_found(workspace) -> None:
    reading = ClockReading(SystemClock().now_ms() + 3_000_000, 1, "another boot")
    workspace.execute(
        "INSERT OR REPLACE INTO meta VALUES ('clock', ?)",
        encode(ClockNote(reading)),
        store="broker",
    )
    assert found_by(workspace, "host.clock") == [("info", "clock", "jumped")]

"""The checks of permissions and owners in the data directory, and of the clock."""

import os
from types import SimpleNamespace

import pytest

from doctor.checks import host_files
from tests.doctor.workspace import WorkspaceFixture


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


# -- clock -------------------------------------------------------------------------------------

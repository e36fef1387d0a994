"""Every breakage is found by name, with its cause; repaired, or left with the reason; and what
people and agents wrote is what it was."""

import hashlib
import json
import sqlite3

import pytest

from appliance.checks.check import Finding, Severity
from appliance.workspace.datadir import STORES
from doctor.declared_checks import INCLUDED_IN
from tests.doctor.backup_breakages import BACKUPS
from tests.doctor.breakage_table import FILES, STORE_FILES
from tests.doctor.breakages import Breakage, UsedWorkspace
from tests.doctor.repairs import repair, tables_of
from tests.doctor.row_breakages import ROWS
from tests.doctor.workspace import WorkspaceFixture

pytestmark = pytest.mark.slow

BREAKAGES = (*FILES, *STORE_FILES, *ROWS, *BACKUPS)


def named(findings: list[Finding]) -> set[str]:
    return {f"{finding.check}:{finding.problem}" for finding in findings}


def serious(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def included(findings: list[Finding]) -> set[str]:
    """The findings that `--all` must have too, by the checks that it runs instead of others."""
    return {
        f"{INCLUDED_IN[finding.check]}:{finding.problem}"
        for finding in findings
        if finding.check in INCLUDED_IN
    }


def state_of(workspace: WorkspaceFixture) -> dict[str, str]:
    """The hash of every table, by store and name. A store that can't be read has one hash, of its
    file. This opens stores as the checks do, so that a write-ahead log stays."""
    hashes = {}
    for store in STORES:
        path = workspace.data.database(store)
        if path.exists():
            try:
                hashes |= tables_of(store, path)
            except sqlite3.DatabaseError:
                hashes[store] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def test_nothing_is_found_before_it_is_broken(used: UsedWorkspace) -> None:
    assert used.find_all() == []
    assert len(BREAKAGES) >= 40
    assert len({row.name for row in BREAKAGES}) == len(BREAKAGES)


@pytest.mark.parametrize("row", BREAKAGES, ids=lambda row: row.name.replace(" ", "-"))
def test_breakage_is_found_and_repaired(used: UsedWorkspace, row: Breakage) -> None:
    whole = state_of(used)
    row.damage(used)
    broken = state_of(used)

    findings = used.find_all()
    causes = {
        f"{finding.check}:{finding.problem}": finding.explained_by
        for finding in findings
        if finding.explained_by
    }
    assert causes == dict(row.explained)
    assert included(findings) <= named(findings), "--all would miss what a cheap check finds"
    first = [each for each in serious(findings) if not each.explained_by] or findings
    assert named(first) == set(row.finds)
    assert state_of(used) == broken, "a check wrote"

    result = repair(used, *row.flags, "--yes", "--json")
    report = json.loads(result.stdout)
    after = used.find_all()
    if row.unrepaired:
        left = {entry["check"] for entry in report["plan"]["unrepaired"]}
        checks = {finding.check for finding in serious(first)}
        assert checks - (INCLUDED_IN.keys() if "--all" in row.flags else set()) <= left
        assert named(after) == named(findings)
        assert state_of(used) == broken, "what can't be repaired was changed"
    else:
        assert result.exit_code == 0, result.output
        assert after == []
        assert state_of(used) == whole

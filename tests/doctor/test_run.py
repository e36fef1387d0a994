"""Verdicts: ready or not, exit codes, time limits."""

import sqlite3
from collections.abc import Iterator

import pytest

from appliance.checks.check import Check, Finding, Severity
from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.kernel.errors import Unavailable
from doctor import run
from tests.doctor.workspace import WorkspaceFixture


def row(*findings: Finding) -> Check:
    return Check(name="a.b", inspects="what a test says", find=lambda context: findings)


def finding_of(severity: Severity) -> Finding:
    return Finding(severity, "it", "is so")


@pytest.mark.parametrize(
    ("severities", "code", "strict", "ready"),
    [
        ([], 0, 0, True),
        ([Severity.INFO], 0, 0, True),
        ([Severity.WARNING, Severity.INFO], 0, 1, True),
        ([Severity.WARNING, Severity.ERROR], 2, 2, True),
        ([Severity.CRITICAL, Severity.INFO], 2, 2, False),
    ],
)
def test_worst_finding_determines_exit_code_and_readiness(
    workspace: WorkspaceFixture, severities: list[Severity], code: int, strict: int, ready: bool
) -> None:
    findings = [finding_of(severity) for severity in severities]
    with workspace.context() as context:
        outcomes = run.examine(context, [row(*findings), row()])
    assert run.exit_code(outcomes, strict=False) == code
    assert run.exit_code(outcomes, strict=True) == strict
    assert run.is_ready(findings) is ready


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), Unavailable("not now")]
)
def test_failed_check_is_an_error_and_does_not_stop_the_others(
    workspace: WorkspaceFixture, error: Exception
) -> None:
    def find(context: Context) -> Iterator[Finding]:
        yield finding_of(Severity.WARNING)
        raise error

    check = Check(name="a.c", inspects="nothing", find=find)
    with workspace.context() as context:
        outcomes = run.examine(context, [check, row()])
    assert [finding.severity for finding in outcomes[0].findings] == [
        Severity.WARNING,
        Severity.ERROR,
    ]
    assert outcomes[0].findings[1].check == "a.c"
    assert not outcomes[1].findings


class LazyContext:
    """A clock that is late from the second look on."""

    def __init__(self) -> None:
        self.calls = 0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.calls += 1
        return 0.0 if self.calls == 1 else 1e9


def test_slow_check_is_interrupted_and_reported(workspace: WorkspaceFixture) -> None:
    def find(context: Context) -> Iterator[Finding]:
        context.open("hub").execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        ).fetchone()
        yield finding_of(Severity.ERROR)

    slow = Check(name="a.d", inspects="for ever", find=find)
    with Context(workspace.data, DoctorSettings(), LazyContext()) as context:
        (finding,) = run.run_check(context, slow).findings
    assert finding.severity is Severity.INFO
    assert "not finished within 5 s" in finding.message
    assert "doctor.check_seconds_max" in finding.hint


def test_doctor_can_not_write_to_a_store(workspace: WorkspaceFixture) -> None:
    with workspace.context() as context, pytest.raises(sqlite3.OperationalError, match="readonly"):
        context.open("hub").execute("INSERT INTO meta VALUES ('a', 'b')")

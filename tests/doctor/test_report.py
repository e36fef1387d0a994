"""The report for people: findings below their causes, and one line for what is good."""

from appliance.checks.check import Finding, Severity
from doctor import report
from doctor.report import WorkspaceFacts
from doctor.run import CheckOutcome

FACTS = WorkspaceFacts(workspace="/w")
FULL = Finding(Severity.ERROR, "disk", "is full", "df -h /w", check="host.disk", problem="full")
ENDED = Finding(
    Severity.CRITICAL,
    "hub",
    "the writer has ended",
    check="store.writer",
    problem="ended",
    explained_by="host.disk:full",
)
WAITING = Finding(
    Severity.WARNING,
    "outbox",
    "sends wait",
    check="outbox.waiting",
    problem="waiting",
    explained_by="store.writer:ended",
)


def outcome(check: str, *findings: Finding) -> CheckOutcome:
    return CheckOutcome(check, f"about {check}", findings, 0.25)


def text(*outcomes: CheckOutcome, quiet: bool = False, every_check: bool = False) -> list[str]:
    lines = report.as_text(report.report(FACTS, outcomes), quiet=quiet, every_check=every_check)
    return lines if quiet else lines[6:]


def test_findings_are_listed_below_their_causes() -> None:
    lines = text(
        outcome("outbox.waiting", WAITING),
        outcome("host.disk", FULL),
        outcome("store.writer", ENDED),
    )
    assert lines == [
        "[bad]  host.disk           disk: is full",
        "                           -> df -h /w",
        "[BAD]    store.writer        hub: the writer has ended",
        "[warn]     outbox.waiting      outbox: sends wait",
        "",
        "Summary: 1 warning, 2 errors; 2 of them explained by others (3 checks)",
    ]


def test_finding_whose_cause_is_not_listed_is_not_lost() -> None:
    lines = text(outcome("store.writer", ENDED), quiet=True)
    assert lines == ["[BAD]  store.writer  hub: the writer has ended"]

"""Run doctor checks now and then, so that their findings become metrics and messages."""

from collections.abc import Callable, Sequence

from appliance.checks.check import Check, Severity
from appliance.checks.context import Context
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import gauge
from appliance.kernel.wakeup import Wakeup
from doctor.run import CheckOutcome, run_check
from doctor.verdict import DoctorVerdict, VerdictQuery

_findings = gauge("doctor_findings", "Findings in a check's last run", ("check", "severity"))
_ended = gauge(
    "doctor_last_run_timestamp_seconds", "When all cheap checks ran last; 0: not since the start"
)
_errors = gauge("doctor_last_run_errors", "Errors among these findings")

LatestOutcomes = dict[str, CheckOutcome]
"""The last outcomes by check name."""


class Checkup(Loop):
    """A loop that runs the readiness checks every few seconds and counts their findings."""

    name = "doctor_checkup"
    interval_seconds = 10.0
    runs_read_only = True

    def __init__(
        self,
        context: Callable[[], Context],
        checks: Sequence[Check],
        latest: LatestOutcomes,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._context = context
        self._checks = checks
        self._latest = latest

    def run_once(self, now_ms: int) -> dict[str, int]:
        total = 0
        with self._context() as context:
            for check in self._checks:
                outcome = run_check(context, check)
                total += len(outcome.findings)
                note_outcome(self._latest, outcome)
        return {"findings": total}


class DoctorRuns(Loop):
    """A loop that runs the checks through `verdict`, in a child process, which takes about a
    second. Setting `work`, as after a failed backup or job, starts the checks earlier."""

    name = "doctor_runs"
    interval_seconds = 900.0
    shortest_seconds = 60.0
    runs_read_only = True

    def __init__(
        self,
        verdict: Callable[[VerdictQuery, float], DoctorVerdict],
        latest: LatestOutcomes,
        clock: Clock,
        log: Log,
        work: Wakeup | None = None,
    ) -> None:
        super().__init__(clock, log, work)
        self._verdict = verdict
        self._latest = latest

    def run_once(self, now_ms: int) -> dict[str, int]:
        result = self._verdict(VerdictQuery(), 0.0)
        for outcome in result.checks:
            note_outcome(self._latest, outcome)
        _errors.set(result.errors)
        _ended.set(now_ms / 1000)
        return {"errors": result.errors}


def note_outcome(latest: LatestOutcomes, outcome: CheckOutcome) -> None:
    """Note an outcome, also as metrics. Only findings that exist have a series: there are 80
    checks."""
    latest[outcome.check] = outcome
    for severity in Severity:
        count = sum(finding.severity is severity for finding in outcome.findings)
        if count:
            _findings.labels(outcome.check, severity.value).set(count)
        else:
            _findings.remove(outcome.check, severity.value)

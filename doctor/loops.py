"""Turns the findings of the readiness checks into metrics."""

from collections.abc import Callable

from appliance.checks.check import Severity
from appliance.checks.context import Context
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import gauge
from doctor.run import READY_CHECKS, CheckOutcome, run_check

_findings = gauge("doctor_findings", "Findings of the last run of a check", ("check", "severity"))


class Checkup(Loop):
    """Runs the readiness checks every few seconds and counts their findings."""

    name = "doctor_checkup"
    interval_seconds = 10.0
    runs_read_only = True

    def __init__(self, context: Callable[[], Context], clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._context = context

    def run_once(self, now_ms: int) -> dict[str, int]:
        total = 0
        with self._context() as context:
            for check in READY_CHECKS:
                outcome = run_check(context, check)
                total += len(outcome.findings)
                show_findings(outcome)
        return {"findings": total}


def show_findings(outcome: CheckOutcome) -> None:
    """As metrics. Only those that exist have a series: there are 80 checks."""
    for severity in Severity:
        count = sum(finding.severity is severity for finding in outcome.findings)
        if count:
            _findings.labels(outcome.check, severity.value).set(count)
        else:
            _findings.remove(outcome.check, severity.value)

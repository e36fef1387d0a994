"""Turns the doctor's verdicts into metrics, from the table that readiness and CLI read."""

from collections.abc import Callable

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import gauge
from doctor.check import Context, Severity
from doctor.run import READY_CHECKS, look

_findings = gauge(
    "doctor_findings", "What the last checkup found, by check and severity", ("check", "severity")
)


class Checkup(Loop):
    """Asks the cheap checks every few seconds and counts what they find."""

    name = "doctor_checkup"
    interval_seconds = 10.0

    def __init__(self, context: Callable[[], Context], clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._context = context

    def run_once(self, now_ms: int) -> dict[str, int]:
        total = 0
        with self._context() as context:
            for check in READY_CHECKS:
                findings = look(context, check).findings
                total += len(findings)
                for severity in Severity:
                    count = sum(found.severity is severity for found in findings)
                    _findings.labels(check.name, severity.value).set(count)
        return {"findings": total}

"""Runs the cheap checks of the doctor now and then, so that their findings are metrics."""

from collections.abc import Callable

from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.metrics import gauge
from doctor.loops import show_findings
from doctor.verdict import DoctorVerdict, VerdictQuery

_ended = gauge(
    "doctor_last_run_timestamp_seconds", "When all cheap checks ran last; 0: not since the start"
)
_errors = gauge("doctor_last_run_errors", "Findings of that run that are errors")


class DoctorRuns(Loop):
    """`verdict` runs the checks in a child process, which takes about a second."""

    name = "doctor_runs"
    interval_seconds = 900.0
    runs_read_only = True

    def __init__(
        self, verdict: Callable[[VerdictQuery], DoctorVerdict], clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log)
        self._verdict = verdict

    def run_once(self, now_ms: int) -> dict[str, int]:
        result = self._verdict(VerdictQuery())
        for outcome in result.checks:
            show_findings(outcome)
        _errors.set(result.errors)
        _ended.set(now_ms / 1000)
        return {"errors": result.errors}

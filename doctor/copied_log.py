"""Replays the log of a copy that nobody uses, and compares it with all rows of the copy."""

from appliance.checks.check import Severity
from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import Clock
from appliance.workspace.datadir import DataDir
from doctor.run import INCLUDED_IN, run_check, select

GROUP = "events"


def problems(datadir: DataDir, clock: Clock, seconds_max: float) -> list[str]:
    """How rows and events of the hub's store differ, after at most `seconds_max`. Warnings, which
    affect no client, are left out."""
    lines = []
    with Context(datadir, DoctorSettings(), clock, stores=("hub",)) as context:
        for check in select((), True, (GROUP,)):
            if check.name in INCLUDED_IN:
                continue
            for finding in run_check(context, check, seconds_max=seconds_max).findings:
                if finding.severity in (Severity.ERROR, Severity.CRITICAL):
                    lines.append(f"{check.name}: {finding.subject}: {finding.message}")
    return lines

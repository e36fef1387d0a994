"""Run checks on stores in a copy that nobody uses, such as a restored backup."""

from collections.abc import Mapping

from appliance.checks.check import Severity
from appliance.checks.context import Context
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import Clock
from appliance.workspace.datadir import DataDir
from doctor.declared_checks import INCLUDED_IN
from doctor.run import run_check, select


def problems(
    datadir: DataDir, groups: Mapping[str, str], clock: Clock, seconds_max: float
) -> list[str]:
    """Return the errors that each store's check group finds, each check taking at most
    `seconds_max`. Warnings, which affect no client, are left out."""
    checks = [check for group in groups.values() for check in select((), True, (group,))]
    with Context(datadir, DoctorSettings(), clock, stores=tuple(groups)) as context:
        return [
            f"{check.name}: {finding.subject}: {finding.message}"
            for check in checks
            if check.name not in INCLUDED_IN
            for finding in run_check(context, check, seconds_max=seconds_max).findings
            if finding.severity in (Severity.ERROR, Severity.CRITICAL)
        ]

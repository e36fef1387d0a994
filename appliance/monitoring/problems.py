"""Doctor findings as problems to report to the operator."""

from collections.abc import Mapping
from itertools import chain

from appliance.checks.check import Severity
from appliance.monitoring.loops import LatestOutcomes
from appliance.operations.problems import Observed, OperatorProblem, OperatorSeverity
from doctor.causes import explain

SEVERITIES: Mapping[Severity, OperatorSeverity] = {
    Severity.WARNING: "warning", Severity.ERROR: "error", Severity.CRITICAL: "error",
}  # fmt: skip


def list_findings(latest: LatestOutcomes) -> Observed:
    """List findings by check, without findings that another finding explains, also one from a
    check that another loop runs, and without findings that only inform."""
    outcomes = list(latest.values())
    observed: dict[str, list[OperatorProblem]] = {outcome.check: [] for outcome in outcomes}
    for finding in explain(list(chain.from_iterable(outcome.findings for outcome in outcomes))):
        if finding.severity in SEVERITIES and not finding.explained_by:
            key, severity = f"{finding.problem}:{finding.subject}", SEVERITIES[finding.severity]
            text = f"{finding.subject}: {finding.message}"
            observed[finding.check].append(OperatorProblem(key, severity, text, finding.hint))
    return observed

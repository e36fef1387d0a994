"""The findings of the doctor as problems that the operator gets to know."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from appliance.checks.check import Severity
from appliance.host import Host
from appliance.integrations.notify_parts import notify_needs
from appliance.kernel.subsystem import Subsystem
from appliance.monitoring.loops import LatestOutcomes
from appliance.notify.problems import Observed, OperatorProblem, OperatorSeverity
from appliance.notify.subsystem import NotifySubsystem
from appliance.outbox.service import Outbox
from appliance.outbox.target import DeliveryTarget
from doctor.causes import explain

SEVERITIES: Mapping[Severity, OperatorSeverity] = {
    Severity.WARNING: "warning", Severity.ERROR: "error", Severity.CRITICAL: "error",
}  # fmt: skip


def notify_of(
    host: Host,
    parts: Sequence[Subsystem],
    outbox: Outbox | None,
    targets: Sequence[DeliveryTarget],
    latest: LatestOutcomes,
) -> NotifySubsystem:
    needs = notify_needs(host, parts, outbox, targets, partial(list_findings, latest))
    return NotifySubsystem(host, needs)


def list_findings(latest: LatestOutcomes) -> Observed:
    """By check; without what another finding explains, also one of a check that another loop runs,
    and without findings that only inform."""
    outcomes = list(latest.values())
    observed: dict[str, list[OperatorProblem]] = {outcome.check: [] for outcome in outcomes}
    for finding in explain(list(chain.from_iterable(outcome.findings for outcome in outcomes))):
        if finding.severity in SEVERITIES and not finding.explained_by:
            observed[finding.check].append(
                OperatorProblem(
                    f"{finding.problem}:{finding.subject}",
                    SEVERITIES[finding.severity],
                    f"{finding.subject}: {finding.message}",
                    finding.hint,
                )
            )
    return observed

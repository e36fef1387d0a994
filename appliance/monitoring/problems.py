"""The findings of the doctor as problems that the operator gets to know."""

from collections.abc import Mapping, Sequence
from functools import partial

from appliance.checks.check import Severity
from appliance.host import Host
from appliance.integrations.notify_parts import notify_needs
from appliance.kernel.subsystem import Subsystem
from appliance.monitoring.loops import LatestOutcomes
from appliance.notify.problems import Observed, OperatorProblem, OperatorSeverity
from appliance.notify.subsystem import NotifySubsystem
from appliance.outbox.service import Outbox
from appliance.outbox.target import DeliveryTarget

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
    """By check; without what another finding explains, and without findings that only inform."""
    return {
        outcome.check: [
            OperatorProblem(
                f"{finding.problem}:{finding.subject}",
                SEVERITIES[finding.severity],
                f"{finding.subject}: {finding.message}",
                finding.hint,
            )
            for finding in outcome.findings
            if finding.severity in SEVERITIES and not finding.explained_by
        ]
        for outcome in list(latest.values())
    }

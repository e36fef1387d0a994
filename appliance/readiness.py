"""`/-/ready` by the doctor's table of checks, so that the probe and the doctor agree."""

from collections.abc import Iterable

import msgspec

from appliance.web.health import ReadinessResult
from doctor.check import Severity
from doctor.context import Context
from doctor.run import is_ready, readiness


def readiness_of(context: Context, instance_id: str, suspended: Iterable[str]) -> ReadinessResult:
    """`suspended`: stores that are damaged and not served. Closes `context`."""
    with context:
        findings = readiness(context)
    details = {
        "instance_id": instance_id,
        "findings": msgspec.to_builtins(findings),
        "facts": dict(context.live or {}),
    }
    failing = {finding.check for finding in findings if finding.severity is Severity.CRITICAL}
    return ReadinessResult(is_ready(findings), sorted(failing), details, sorted(suspended))

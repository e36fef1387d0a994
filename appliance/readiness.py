"""Answers `/-/ready` from the doctor's checks, so that the probe and the doctor agree."""

import msgspec

from appliance.checks.check import Severity
from appliance.checks.context import Context
from appliance.web.health import Readiness
from doctor.run import is_ready, readiness

_DAMAGED = (".suspended", ".suspect")  # store facts: found at the start, or while in use


def readiness_of(context: Context, instance_id: str) -> Readiness:
    """Return the readiness by the running appliance's facts in `context`, and close the context."""
    with context:
        findings = readiness(context)
    facts = dict(context.live or {})
    damaged = {name.partition(".")[0] for name in facts if facts[name] and name.endswith(_DAMAGED)}
    failing = {finding.check for finding in findings if finding.severity is Severity.CRITICAL}
    ready = is_ready(findings)
    return Readiness(
        "ready" if ready else "not ready",
        ready,
        sorted(failing),
        sorted(damaged),
        instance_id,
        msgspec.to_builtins(findings),
        facts,
    )

"""`/-/ready` by the doctor's table of checks, so that the probe and the doctor agree."""

import msgspec

from appliance.checks.check import Severity
from appliance.checks.context import Context
from appliance.web.health import Readiness
from doctor.run import is_ready, readiness

_DAMAGED = (".suspended", ".suspect")  # facts of a store: found at the start, or while in use


def readiness_of(context: Context, instance_id: str) -> Readiness:
    """By the facts of the running appliance in `context`, which is closed."""
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

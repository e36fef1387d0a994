"""Which findings explain others. A finding with a cause is listed below the cause, without a
hint: fixing the cause also fixes the finding.

The causes here are host and store findings. A module with more checks declares more causes.
"""

from collections.abc import Sequence

import msgspec

from appliance.checks.cause import Cause
from appliance.checks.check import DAMAGED_STORE, Finding
from doctor.declared_checks import DECLARED_CAUSES

_DAMAGE_READ = (f"*:{DAMAGED_STORE}",)
_HOST = (
    Cause(
        "host.disk:read-only",
        (
            "host.disk:full", "*:not-writable", "*:unopenable", "store.writer:*", "*:unfinished",
            "host.server-file:*", "host.lock:left-behind", "export.lag:behind",
            "backup.age:none", "backup.age:old", "backup.verified:unproven", "backup.space:*",
            "backup.failures:*",
        ),
    ),
    Cause("host.disk:full", ("*:not-writable", "*:unopenable", "store.writer:*", "*:unfinished")),
    Cause("host.disk:paused", ("store.writer:*",)),
    Cause("host.owner:foreign", ("*:not-writable", "*:unopenable", "*:unreadable")),
    Cause(
        "host.owner:other-user",
        (
            "*:not-writable", "*:unopenable", "*:unreadable", "*:failed", "host.token:empty",
            "store.record:missing",
        ),
    ),
    Cause("host.clock:past", ("*:waiting",)),
    Cause("host.clock:jumped", ("*:waiting",)),
    Cause("host.token:*", ("store.record:missing",), same_subject=True),
)  # fmt: skip
_STORES = (
    Cause("store.schema:newer", ("store.objects:*",), same_subject=True),
    Cause("store.record:foreign", ("store.[smo]*",), same_subject=True),
    Cause("store.log:ignored-frames", ("store.record:behind",), same_subject=True),
    Cause("store.suspect:*", ("store.writer:*",), same_subject=True),
    Cause("store.opens:damaged", _DAMAGE_READ, same_subject=True),
)
# The check that looks for damage knows most. Otherwise, the first check that read damage is the
# evidence.
_DAMAGE = (
    Cause("store.integrity:damaged", _DAMAGE_READ, same_subject=True),
    Cause("store.whole:damaged", _DAMAGE_READ, same_subject=True),
    Cause(_DAMAGE_READ[0], _DAMAGE_READ, same_subject=True, first=True),
)
CAUSES: tuple[Cause, ...] = (*_HOST, *DECLARED_CAUSES, *_STORES, *_DAMAGE)
"""If two causes explain a finding, the first one counts."""
ALWAYS_RUN = frozenset(cause.name.partition(":")[0] for cause in (*_HOST, *_STORES))
"""The checks that always run, because their findings can be causes and reading is cheap. The
report lists one only if it explains a finding."""


def explain(findings: Sequence[Finding]) -> list[Finding]:
    """Add the cause to each finding that has one, and keep the order.

    Only a cause that is at least a warning counts, and a finding never explains
    another finding from its own check.
    """
    present = [finding for finding in findings if finding.severity.rank > 0]
    return [_explain(finding, present) for finding in findings]


def _explain(finding: Finding, present: Sequence[Finding]) -> Finding:
    if finding.problem == "damaged":
        return finding
    for cause in CAUSES:
        for other in present:
            if cause.first and other is finding:
                break
            if cause.applies(other, finding):
                return msgspec.structs.replace(finding, hint="", explained_by=other.name)
    return finding

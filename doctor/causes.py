"""Which findings explain others. A finding with a cause is listed below it, without a hint: what
helps against the cause helps against it too."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from appliance.checks.check import DAMAGED_STORE, Finding


class Cause(msgspec.Struct, frozen=True):
    """`name` and `explains` are `check:problem`, in which `*` stands for any text.

    same_subject  the finding must be about the same store or secret, or about a table of it
    on_demand     its check runs only if the request names it, because it reads too much
    first         only the first such finding explains others

    Damage that was read from a file is never explained: no cause excuses it.
    """

    name: str
    explains: tuple[str, ...]
    same_subject: bool = False
    on_demand: bool = False
    first: bool = False

    def applies(self, cause: Finding, finding: Finding) -> bool:
        """Whether `cause`, of another check, explains `finding`."""
        if cause.check == finding.check or not fnmatchcase(name_of(cause), self.name):
            return False
        name = name_of(finding)
        if not any(fnmatchcase(name, pattern) for pattern in self.explains):
            return False
        same = cause.subject in (finding.subject, finding.subject.partition(".")[0])
        return same or not self.same_subject


_DAMAGE_READ = (f"*:{DAMAGED_STORE}",)
# The order matters: if two causes explain a finding, the first one counts.
CAUSES: tuple[Cause, ...] = (
    Cause(
        "host.disk:read-only",
        ("host.disk:full", "*:not-writable", "*:unopenable", "store.writer:*", "*:unfinished"),
    ),
    Cause("host.disk:full", ("*:not-writable", "*:unopenable", "store.writer:*", "*:unfinished")),
    Cause("host.disk:paused", ("store.writer:*",)),
    Cause("host.owner:foreign", ("*:not-writable", "*:unopenable", "*:unreadable")),
    Cause(
        "host.owner:other-user",
        (
            "*:not-writable",
            "*:unopenable",
            "*:unreadable",
            "*:failed",
            "host.token:empty",
            "store.record:missing",
            "identity.keypair:*",
        ),
    ),
    Cause("host.clock:past", ("*:waiting", "tokens.*:*")),
    Cause("host.clock:jumped", ("*:waiting",)),
    Cause(
        "events.sequence*:gap",
        ("events.rows*:differs", "events.rows*:gap", "events.deleted:gap", "events.pairs:no-event"),
        on_demand=True,
    ),
    Cause("store.schema:newer", ("store.objects:*",), same_subject=True),
    Cause("events.scope:no-scope", ("export.agrees:differs",), on_demand=True),
    Cause("export.agrees:differs", ("events.rows*:differs",), on_demand=True),
    Cause("host.token:*", ("store.record:missing",), same_subject=True),
    Cause("store.log:ignored-frames", ("store.record:behind",), same_subject=True),
    Cause("store.suspect:*", ("store.writer:*",), same_subject=True),
    # The check that looks for damage knows most about it. Without it, the first check that read
    # damage is the evidence.
    Cause("store.opens:damaged", _DAMAGE_READ, same_subject=True),
    Cause("store.integrity:damaged", _DAMAGE_READ, same_subject=True, on_demand=True),
    Cause("store.whole:damaged", _DAMAGE_READ, same_subject=True, on_demand=True),
    Cause(_DAMAGE_READ[0], _DAMAGE_READ, same_subject=True, on_demand=True, first=True),
)
ALWAYS_RUN = frozenset(cause.name.partition(":")[0] for cause in CAUSES if not cause.on_demand)
"""The checks that always run, because their findings can be causes. They are listed only if they
explain a finding."""


def explain(findings: Sequence[Finding]) -> list[Finding]:
    """The same findings in the same order, each with its cause, if there is one.

    Only a cause that is at least a warning counts, and no finding explains one of its own check.
    """
    present = [finding for finding in findings if finding.severity.rank > 0]
    return [_explain(finding, present) for finding in findings]


def name_of(finding: Finding) -> str:
    return f"{finding.check}:{finding.problem}"


def _explain(finding: Finding, present: Sequence[Finding]) -> Finding:
    if finding.problem == "damaged":
        return finding
    for cause in CAUSES:
        for other in present:
            if cause.first and other is finding:
                break
            if cause.applies(other, finding):
                return msgspec.structs.replace(finding, hint="", explained_by=name_of(other))
    return finding

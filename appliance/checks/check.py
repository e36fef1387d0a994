"""The types for the doctor's table: Check, Problem, Finding and Severity."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from appliance.checks.context import Context
from appliance.checks.step import Step
from appliance.kernel.errors import fill_in


class Severity(enum.Enum):
    """A finding's severity. Only `critical` makes the appliance not ready."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Cost(enum.Enum):
    CHEAP = "cheap"
    EXPENSIVE = "expensive"  # reads whole stores; only with --all


class Finding(msgspec.Struct, frozen=True):
    """A problem that exists now.

    problem       a name from the check's `problems`
    explained_by  the name of the finding that is the cause; then the finding has no hint
    """

    severity: Severity
    subject: str
    message: str = msgspec.field(name="sentence")
    hint: str = ""
    check: str = ""
    problem: str = ""
    explained_by: str = ""

    @property
    def name(self) -> str:
        """Return `check:problem`, as `explained_by` and causes name the finding."""
        return f"{self.check}:{self.problem}"


class Problem(msgspec.Struct, frozen=True):
    """A kind of finding that a check can have. A page in the docs explains the meaning.

    name      a word or two, unique in the check: `read-only`
    severity  for findings without their own severity
    hint      the command that helps, if all findings share one
    """

    name: str
    severity: Severity = Severity.WARNING
    hint: str = ""

    def finding(
        self, subject: str, message: str, hint: str | None = None, severity: Severity | None = None,
        known: Mapping[str, Any] | None = None,
    ) -> Finding:  # fmt: skip
        """Create a finding. `hint` and `severity` replace the problem's. `known` are values for
        placeholders in the problem's hint."""
        return Finding(
            self.severity if severity is None else severity,
            subject,
            message,
            fill_in(self.hint, known or {}) if hint is None else hint,
            problem=self.name,
        )


COPY = "restore a verified copy of the store"
"""A hint that the doctor replaces by the commands for the store in the check's subsystem."""
RESTORE = "recover the store, or restore a copy"
"""A hint for the store that the subject begins with, after damage was read from that store. The
doctor replaces this hint by commands too."""
THIS_CHECK = "{check}"
"""In a hint: the name of the check with the finding."""
FINDINGS_MAX = 20  # findings per check; more are only counted
NEWEST_IDS_MAX = 20_000  # ids that a cheap check compares
CLOCK_BEHIND_WARNING_SECONDS = 60.0  # a stored time further ahead: the clock was set back
DAMAGED_STORE = "damaged-store"
COMMON_PROBLEMS = ("failed", DAMAGED_STORE, "unfinished")
"""The problems that every check can have, in addition to its own."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A row in the table. `find` never writes. `ready` checks run for every /-/ready, so they
    only read process facts and file sizes.

    inspects  what is true when nothing is found
    problems  every kind of finding that the check can have, except COMMON_PROBLEMS
    includes  the name of a cheap check whose findings this check has too, because this check reads
              everything that the cheap one samples; with --all the cheap one doesn't run
    always    run also if the subsystem is off, because other programs use the files
    repair    plans the steps that repair the findings; None: no automatic repair
    """

    name: str
    inspects: str
    find: Callable[[Context], Iterable[Finding]]
    cost: Cost = Cost.CHEAP
    ready: bool = False
    problems: tuple[Problem, ...] = ()
    includes: str | None = None
    always: bool = False
    repair: Callable[[Context, Sequence[Finding]], Iterable[Step]] | None = None

    @property
    def group(self) -> str:
        """Return the name's part before the dot: `store` in `store.opens`."""
        return self.name.partition(".")[0]

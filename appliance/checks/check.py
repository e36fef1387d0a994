"""The types of the doctor's table: Check, Problem, Finding and Severity."""

import enum
from collections.abc import Callable, Iterable, Sequence

import msgspec

from appliance.checks.context import Context
from appliance.checks.step import Step


class Severity(enum.Enum):
    """The severity of a finding. Only `critical` makes the appliance not ready."""

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

    problem       the name of one of its check's `problems`
    explained_by  the name of the finding that is its cause; then it has no hint of its own
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
        """`check:problem`, as `explained_by` and causes name it."""
        return f"{self.check}:{self.problem}"


class Problem(msgspec.Struct, frozen=True):
    """A kind of finding that a check can have. Its page in the docs says what it means.

    name      a word or two, unique in its check: `read-only`
    severity  of its findings, if they don't have their own
    hint      the command that helps, if it is the same for all its findings
    """

    name: str
    severity: Severity = Severity.WARNING
    hint: str = ""

    def finding(
        self, subject: str, message: str, hint: str | None = None, severity: Severity | None = None
    ) -> Finding:
        """`hint` and `severity`: instead of those of the problem."""
        return Finding(
            self.severity if severity is None else severity,
            subject,
            message,
            self.hint if hint is None else hint,
            problem=self.name,
        )


COPY = "restore a copy of the store that was verified"
"""A hint that the doctor replaces by the commands for the store of the check's subsystem."""
RESTORE = "recover the store, or restore a copy"
"""The same for the store that the subject begins with, after damage was read from it."""
THIS_CHECK = "{check}"
"""In a hint: the name of the check that has the finding."""
FINDINGS_MAX = 20  # findings of a check; more are only counted
NEWEST_IDS_MAX = 20_000  # ids that a cheap check compares
CLOCK_BEHIND_WARNING_SECONDS = 60.0  # a stored time further ahead: the clock was set back
DAMAGED_STORE = "damaged-store"
COMMON_PROBLEMS = ("failed", DAMAGED_STORE, "unfinished")
"""Every check can have these, in addition to its own."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table. `find` never writes. `ready` checks run for every /-/ready, so they only
    read facts of the process and sizes of files.

    inspects  what is true when nothing is found
    problems  every kind of finding that it can have, except COMMON_PROBLEMS
    includes  the name of a cheap check whose findings this one has too, because it reads all of
              what that one samples; with --all that one doesn't run
    always    it runs also if its subsystem is off, because other programs use the same files
    repair    plans the steps that repair its findings; None: it can't be repaired automatically
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
        """The part of the name before the dot: `store` of `store.opens`."""
        return self.name.partition(".")[0]

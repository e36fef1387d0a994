"""Notes: there is room for another one, and none ends with blanks."""

from collections.abc import Iterator, Sequence

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.plans import change
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.step import Step


def _full(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("toy"):
        (count,) = connection.execute("SELECT count(*) FROM note").fetchone()
        if count >= 2:
            yield Finding(
                Severity.WARNING,
                "toy",
                f"there are {count} notes",
                "agentlip doctor",
                problem="full",
            )


def _trim(context: Context, findings: Sequence[Finding]) -> Iterator[Step]:
    for finding in findings:
        yield change(context, finding, "trim-notes", "trim the notes", "toy")


BLANKS = Problem("blanks")
CHECKS = (
    Check(
        name="toy.blanks",
        inspects="no note ends with blanks",
        problems=(BLANKS,),
        find=find_rows(
            "toy",
            RowRule(
                BLANKS,
                "SELECT number FROM note WHERE text <> trim(text)",
                "note {0}",
                "it ends with blanks",
            ),
        ),
        repair=_trim,
    ),
    Check(
        name="toy.room", inspects="there is room for notes", problems=(Problem("full"),), find=_full
    ),
)

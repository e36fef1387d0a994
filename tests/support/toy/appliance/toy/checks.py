"""Notes: there is room for another one."""

from collections.abc import Iterator

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context


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


CHECKS = (
    Check(
        name="toy.room",
        inspects="there is room for notes",
        reads="all notes",
        problems=(Problem("full", "No note can be added.", "Remove a note."),),
        find=_full,
    ),
)

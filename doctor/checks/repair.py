"""Checks of repairs: none was interrupted."""

from collections.abc import Iterator

from doctor.check import Check, Finding, Problem
from doctor.context import Context
from doctor.journal import journals
from doctor.ownership import is_repairing


def _unfinished(context: Context) -> Iterator[Finding]:
    if is_repairing(context.datadir):
        return
    for journal in journals(context.datadir):
        if not journal.finished:
            ended, steps = len(journal.results), len(journal.plan.steps)
            yield INTERRUPTED.finding(
                f"repair {journal.name}",
                f"a repair of {journal.plan.planned_at} was interrupted after {ended} of {steps}"
                " steps",
            )


INTERRUPTED = Problem(
    "interrupted",
    "The process of a repair ended before its last step. Each step was either applied completely"
    " or not begun. Copies of the changed files are in the repair's folder.",
    "`agentlip doctor repair --yes` finishes it.",
    hint="agentlip doctor repair --yes",
)
CHECKS = (
    Check(
        name="repair.unfinished",
        inspects="no repair was interrupted",
        reads="the journals in .agentlip/repairs",
        problems=(INTERRUPTED,),
        find=_unfinished,
    ),
)

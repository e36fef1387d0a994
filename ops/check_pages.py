"""The index of the doctor's checks."""

from doctor.checks import CHECKS
from ops.markdown import code, page, table

INDEX = """\
`agentlip doctor` runs these checks. `--all` adds the expensive ones, which read all data, and
leaves out the cheap ones that they include. Every `GET /-/ready` runs the checks marked *ready*,
and answers 503 if one has a critical finding. `agentlip doctor repair` repairs findings of those
marked *repair*."""

COMMON = "Every check can have these findings, in addition to its own."
PROBLEMS = (
    (
        "`failed`",
        "The check could not read what it needs, so it found nothing.",
        "Remove the reason that the message names, then run the check again.",
    ),
    (
        "`damaged-store`",
        "SQLite reported damage in the store that the check read, so the check ended there.",
        "Stop the appliance, keep the file, and use the command that the finding names.",
    ),
    (
        "`unfinished`",
        "The check was stopped at its time limit, so it may have missed problems.",
        "Raise `doctor.check_seconds_max`. An expensive check has an hour: repeat it on a restored"
        " backup, on a faster disk.",
    ),
)


def check_index() -> str:
    """The index. The page of a group is written by hand, because it is all prose."""
    rows = [
        (
            f"[{code(check.name)}](checks/{check.group}.md#{check.name.replace('.', '')})",
            check.inspects,
            check.cost.value,
            "yes" if check.ready else "",
            "yes" if check.repair else "",
        )
        for check in CHECKS
    ]
    return page(
        [
            "# Checks",
            INDEX,
            table(("Check", "Inspects", "Cost", "Ready", "Repair"), rows),
            "## Findings of every check",
            COMMON,
            table(("Finding", "What it means", "What to do"), PROBLEMS),
        ]
    )

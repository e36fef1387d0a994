"""The pages of the doctor's checks: an index, and a page for each group of checks."""

from collections.abc import Sequence

from appliance.checks.check import COMMON_PROBLEMS, Check, Cost, Problem
from doctor.checks import CHECKS
from doctor.run import INCLUDED_IN
from ops.markdown import code, page, sentence, table

INDEX = """\
`agentlip doctor` runs these checks. `--all` adds the expensive ones, which read all data, and
leaves out the cheap ones that they include. Every `GET /-/ready` runs the checks marked *ready*,
and answers 503 if one has a critical finding. `agentlip doctor repair` repairs findings of those
marked *repair*. `agentlip doctor explain NAME` prints what the pages say."""

COMMON = "Every check can have these findings, in addition to its own."

GROUP = "`agentlip doctor --group {}` runs these checks."


def check_pages() -> dict[str, str]:
    """File name → text, below docs/reference."""
    groups: dict[str, list[Check]] = {}
    for check in CHECKS:
        groups.setdefault(check.group, []).append(check)
    return {"checks.md": _index()} | {
        f"checks/{group}.md": _group_page(group, checks) for group, checks in groups.items()
    }


def _index() -> str:
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
            _problems(COMMON_PROBLEMS),
        ]
    )


def _group_page(group: str, checks: Sequence[Check]) -> str:
    sections = [f"# Checks: {group}", GROUP.format(group)]
    for check in checks:
        sections += [
            f"## {check.name}",
            sentence(check.inspects) + ".",
            "\n".join(_facts(check)),
            _problems(check.problems),
        ]
    return page(sections)


def _facts(check: Check) -> list[str]:
    if check.cost is Cost.CHEAP:
        cost = "cheap: `agentlip doctor` runs it"
    else:
        cost = f"expensive: it runs only with `--all` or `--run {check.name}`"
    if check.includes is not None:
        cost += f"; with `--all`, `{check.includes}` does not run, because this check includes it"
    elif check.name in INCLUDED_IN:
        cost += f"; with `--all`, `{INCLUDED_IN[check.name]}` runs instead"
    ready = "; every `GET /-/ready` runs it too" if check.ready else ""
    if check.repair:
        repair = f"what can be repaired: `agentlip doctor repair --run {check.name}`"
    else:
        repair = "no"
    return [
        f"- **Reads**: {check.reads}",
        f"- **Cost**: {cost}{ready}",
        f"- **Automatic repair**: {repair}",
    ]


def _problems(problems: Sequence[Problem]) -> str:
    rows = [(code(problem.name), problem.means, problem.remedy) for problem in problems]
    return table(("Finding", "What it means", "What to do"), rows)

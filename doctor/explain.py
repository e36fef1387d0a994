"""Explains findings and their remedies from the documentation in the package."""

import re
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from appliance.checks.check import COMMON_PROBLEMS
from doctor.all_checks import CHECKS
from doctor.run import UnknownCheck

_INSTALLED = files(__package__).joinpath("pages")
_PAGES = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1] / "docs/reference"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ROW = re.compile(r"(?m)^\| `(.+)` \| (.+?) \| (.+) \|$")


def explain(name: str) -> dict[str, Any]:
    """Explain a check, such as `host.disk`, or a finding, such as `host.disk:full`. Raise
    UnknownCheck with similar names."""
    checks = {check.name: check for check in CHECKS}
    own = [f"{check.name}:{problem.name}" for check in CHECKS for problem in check.problems]
    common = {f"{check}:{problem}" for check in checks for problem in COMMON_PROBLEMS}
    if name not in {*checks, *own, *common}:
        near = [each for each in own if name in each] or get_close_matches(name, [*checks, *own])
        hint = f"use one of: {', '.join(near[:5])}" if near else "agentlip doctor list"
        raise UnknownCheck(f"unknown check or finding: {name[:100]}", hint=hint)
    check, _, problem = name.partition(":")
    page = _read(f"checks/{checks[check].group}.md")
    section = page.partition(f"\n## {check}\n")[2].partition("\n## ")[0]
    rows = _ROW.findall(_read("checks.md") if name in common else section)
    about = section.partition("\n| ")[0].partition("\n\n")[2].split()
    keys = ("problem", "meaning", "advice")
    return {
        "check": check, "inspects": checks[check].inspects, "about": " ".join(about),
        "findings": [
            dict(zip(keys, row, strict=True)) for row in rows if problem in ("", row[0])
        ],
    }  # fmt: skip


def _read(page: str) -> str:
    return _LINK.sub(r"\1", _PAGES.joinpath(page).read_text("utf-8"))


def as_text(explained: dict[str, Any]) -> str:
    lines = [f"{explained['check']}: {explained['inspects']}", explained["about"]]
    for finding in explained["findings"]:
        lines += ["", finding["problem"], f"  {finding['meaning']}", f"  -> {finding['advice']}"]
    return "\n".join(lines)

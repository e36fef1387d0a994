"""Counts "of" and pronouns per 1,000 words, which show English that reads as if translated.

    python -m tests.contract.prose_density            print every group, densest first
    python -m tests.contract.prose_density --lower    lower the limits to today's counts

Docstrings, string literals and comments are counted per package, Markdown per folder of `docs`.
Literals are errors, hints, command help, settings comments and names such as JSON keys. A group
without a row in `prose_density.toml` must stay at or below the goal for its kind. Code is not
counted.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.contract.prose_texts import FENCE, of_python, statements
from tests.contract.test_walls import ROOT, parsed, tracked

LIMITS = Path(__file__).with_suffix(".toml")
PRONOUNS = frozenset(
    {"it", "its", "those", "this", "these", "other", "others", "same", "such", "them", "they"}
)
NOT_PROSE = re.compile(r"`[^`]*`|<[^>]+>|https?://\S+|\|")
WORD = re.compile(r"[a-z']+")
NAME = re.compile(r"[a-z]+(?:[_-][a-z]+)+")
PYTHON = ("appliance/*.py", "doctor/*.py", "ops/*.py", "spark/*.py")
COUNTED = {"string": "literals", "comment": "comments"}
"""Kinds of texts from `prose_texts`, and what they are counted as."""
WORDS_MIN = 200
"""A smaller package is counted with the other small ones: one "of" would move it by five."""


class Density(NamedTuple):
    """Occurrences per 1,000 words."""

    of: float
    pronouns: float


GOALS = {
    "docstrings": Density(20.0, 30.0),
    "literals": Density(16.0, 30.0),
    "comments": Density(20.0, 30.0),
    "docs": Density(16.0, 30.0),
}
"""Datasette, restic and Falcon have 11 to 21 "of" and 20 to 24 pronouns."""


def words_of(text: str) -> list[str]:
    return WORD.findall(NOT_PROSE.sub(" ", FENCE.sub(" ", text)).lower())


def docstrings(tree: ast.Module) -> str:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in statements(tree) if isinstance(node, kinds))
    return "\n".join(ast.get_docstring(node) or "" for node in nodes)


def names(tree: ast.Module) -> str:
    """Return the strings that are names of several words: JSON keys, loops, threads, metrics."""
    several = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAME.fullmatch(node.value)
    )
    return "\n".join(re.sub("[_-]", " ", name) for name in several)


def counted() -> Iterator[tuple[str, str, str]]:
    """Yield kind, group and text for each file."""
    for file in tracked(*PYTHON):
        parts = file.relative_to(ROOT).parts
        group = "/".join(parts[:2]) if parts[0] == "appliance" and len(parts) > 2 else parts[0]
        tree = parsed(file)
        yield "docstrings", group, docstrings(tree)
        yield "literals", group, names(tree)
        for text in of_python("/".join(parts), file.read_text(encoding="utf-8")):
            if kind := COUNTED.get(text.kind):
                yield kind, group, text.text
    for file in tracked("docs/*.md", "README.md", "CONTRIBUTING.md", "spark/README.md"):
        if file.name == "cli.md":  # docstrings, which are counted where they are written
            continue
        parts = file.relative_to(ROOT).parts
        group = "/".join(parts[:2]) if len(parts) > 2 else "front pages"
        yield "docs", group, file.read_text(encoding="utf-8")


def densities() -> dict[tuple[str, str], Density]:
    """Measure each group, keyed by kind and name."""
    words: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, group, text in counted():
        words[kind, group] += words_of(text)
    for key in [key for key, listed in words.items() if len(listed) < WORDS_MIN]:
        words[key[0], "small packages"] += words.pop(key)
    return {key: density(listed) for key, listed in words.items()}


def density(words: list[str]) -> Density:
    per_mille = 1000 / max(len(words), 1)
    pronouns = sum(word in PRONOUNS for word in words)
    return Density(round(words.count("of") * per_mille, 1), round(pronouns * per_mille, 1))


def limits() -> dict[tuple[str, str], Density]:
    """Read the groups that may still be above their goal."""
    tables = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    return {
        (kind, group): Density(**row)
        for kind, rows in tables.items()
        for group, row in rows.items()
    }


def lowered(
    measured: dict[tuple[str, str], Density], limits: dict[tuple[str, str], Density]
) -> dict[tuple[str, str], Density]:
    """Return limits that are nowhere higher than before. A goal that is reached has no row."""
    rows = {}
    for (kind, group), now in measured.items():
        goal = GOALS[kind]
        old = limits.get((kind, group), goal)
        row = Density(*(max(end, min(pair)) for end, *pair in zip(goal, now, old, strict=True)))
        if row != goal:
            rows[kind, group] = row
    return rows


def exceeded(
    measured: dict[tuple[str, str], Density], limits: dict[tuple[str, str], Density]
) -> list[str]:
    return [
        f"{group} {kind}: {now.of} of, {now.pronouns} pronouns, above {limit.of}, {limit.pronouns}"
        for (kind, group), now in measured.items()
        for limit in [limits.get((kind, group), GOALS[kind])]
        if now.of > limit.of or now.pronouns > limit.pronouns
    ]


def main() -> None:
    measured = densities()
    if "--lower" in sys.argv:
        rows = lowered(measured, limits())
        lines = []
        for kind in GOALS:
            lines.append(f"[{kind}]")
            lines += [
                f'"{group}" = {{ of = {row.of}, pronouns = {row.pronouns} }}'
                for (of_kind, group), row in sorted(rows.items())
                if of_kind == kind
            ]
        LIMITS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for (kind, group), now in sorted(measured.items(), key=lambda item: (item[0][0], -item[1].of)):
        print(f"{kind:10}  {group:24}  {now.of:5.1f} of  {now.pronouns:5.1f} pronouns")


if __name__ == "__main__":
    main()

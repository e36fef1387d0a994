"""Two results side by side: `python tests/bench/compare.py OLD.json NEW.json`.

The ratio is new to old as measured; the word behind it says which way is good. Compare
runs of one machine only, and ignore differences below a fifth.
"""

import json
import sys
from pathlib import Path
from typing import Any

NOISE = 0.2


def figures(result: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (row["row"], figure["name"]): figure
        for row in result["rows"]
        for figure in row.get("figures", [])
    }


def verdict(ratio: float, better: str) -> str:
    if abs(ratio - 1) < NOISE:
        return "alike"
    return "better" if (ratio > 1) == (better == "higher") else "worse"


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A line for each figure that both have, and one for each that only one has."""
    before, after = figures(old), figures(new)
    lines = [f"{'row':4} {'figure':42} {'old':>10} {'new':>10} {'new/old':>8}"]
    for key in before.keys() | after.keys():
        row, name = key
        if key not in before or key not in after:
            lines.append(f"{row:4} {name:42} only in the {'old' if key in before else 'new'}")
            continue
        was, now = before[key]["value"], after[key]["value"]
        ratio = now / was if was else float("inf")
        word = verdict(ratio, after[key]["better"])
        unit = after[key]["unit"]
        lines.append(f"{row:4} {name:42} {was:>10g} {now:>10g} {ratio:>8.2f} {word} ({unit})")
    return [lines[0], *sorted(lines[1:])]


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Conditions that make the two hard to compare."""
    names = ("cores", "cpu", "python", "sqlite", "filesystem", "durability")
    return [
        f"not alike: {name}: {old['conditions'].get(name)} and {new['conditions'].get(name)}"
        for name in names
        if old["conditions"].get(name) != new["conditions"].get(name)
    ]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    old, new = (json.loads(Path(name).read_text()) for name in arguments)
    print("\n".join([*differences(old, new), *compare(old, new)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Tables of docs/explanation/performance.md: `python tests/bench/table.py RESULT.json`."""

import json
import sys
from pathlib import Path
from typing import Any

CONDITIONS = (
    ("Cores", "cores"),
    ("Processor", "cpu"),
    ("System", "system"),
    ("Python, SQLite", "python", "sqlite"),
    ("File system", "filesystem"),
    ("`fdatasync`, p50 and p99 in ms", "fdatasync_ms"),
    ("Durability (`store.synchronous`)", "durability"),
    ("Load before and after", "load_before", "load_after"),
    ("Commit", "commit"),
)


def conditions(result: dict[str, Any]) -> list[str]:
    lines = ["| Condition | |", "| --- | --- |"]
    for title, *names in CONDITIONS:
        values = [result["conditions"].get(name) for name in names]
        lines.append(f"| {title} | {', '.join(_plain(value) for value in values)} |")
    return lines


def figures(result: dict[str, Any]) -> list[str]:
    lines = [
        "| Row | Figure | Measured | To reach | Reached |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in result["rows"]:
        if "failed" in row:
            lines.append(f"| {row['row']} | failed: {row['failed']} | | | no |")
        for figure in row.get("figures", []):
            verdict = {True: "yes", False: "**no**", None: ""}[figure.get("reached")]
            lines.append(
                f"| {row['row']} | {figure['name']} | {_number(figure['value'])} {figure['unit']}"
                f" | {_target(figure)} | {verdict} |"
            )
    return lines


def floors(result: dict[str, Any]) -> list[str]:
    """Floors, and whose processor time the median run used."""
    lines = ["| Row | Floor, same run | Cores: server (main thread), generator, others |"]
    lines.append("| --- | --- | --- |")
    for row in result["rows"]:
        runs = [run["cores"] for run in row.get("runs", []) if "cores" in run]
        cores = runs[len(runs) // 2] if runs else None
        used = (
            f"{cores['server']} ({cores['server_main_thread']}), {cores['generator']},"
            f" {cores['others']}"
            if cores
            else ""
        )
        lines.append(f"| {row['row']} | {_floor(row.get('floor') or {})} | {used} |")
    return lines


def _floor(floor: dict[str, Any]) -> str:
    parts = []
    for name, value in floor.items():
        if isinstance(value, dict):
            parts.append(f"{name}: {_floor(value)}")
        elif name == "what":
            parts.insert(0, str(value))
        else:
            parts.append(f"{name} {_number(value)}")
    return "; ".join(parts)


def _target(figure: dict[str, Any]) -> str:
    target = figure.get("target", {})
    for word, sign in (("at_least", "≥"), ("below", "<")):
        if word in target:
            return f"{sign} {_number(target[word])}"
    return ""


def _plain(value: Any) -> str:
    return ", ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _number(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) and value >= 1000 else str(value)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    result = json.loads(Path(arguments[0]).read_text())
    for part in (conditions, figures, floors):
        print("\n".join(part(result)), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

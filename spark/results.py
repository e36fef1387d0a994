"""Defines a table check's result. Needs neither Spark nor Java."""

from collections.abc import Sequence
from typing import Any, NamedTuple

WARN, ERROR = "warn", "error"
NAMED_MAX = 5  # files or gaps that one result names
SEGMENTS_SOUND = "segments.sound"  # fails if segments were skipped


class CheckResult(NamedTuple):
    """A check's result: `failed` rows violate the check among `rows`; -1 rows: not counted."""

    name: str
    table: str
    severity: str
    failed: int
    rows: int
    note: str = ""

    @property
    def is_error(self) -> bool:
        return self.failed > 0 and self.severity == ERROR

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def warn_of(name: str, table: str, sentences: Sequence[str]) -> CheckResult:
    """Return a warning that names the first few files or gaps, which rows cannot show."""
    count, note = len(sentences), "; ".join(sentences[:NAMED_MAX])
    return CheckResult(name, table, WARN, count, count, note)


def describe(results: Sequence[CheckResult]) -> list[str]:
    """Return a line for each result, failed results first."""
    lines = []
    for result in sorted(
        results, key=lambda result: (result.failed == 0, result.severity != ERROR)
    ):
        outcome = (
            "passed" if result.failed == 0 else f"{result.severity.upper()}: {result.failed:,} fail"
        )
        lines.append(f"check {result.name}: {outcome}{f' ({result.note})' if result.note else ''}")
    return lines

"""Percentiles, and figures that know their target."""

import statistics
from collections.abc import Sequence
from typing import Any


class Figure:
    """A measured value beside what it has to reach. Without a target it only informs."""

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_least: float | None = None,
        below: float | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.unit = unit
        self.at_least = at_least
        self.below = below

    @property
    def reached(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        if self.below is not None:
            return self.value < self.below
        return None

    def as_json(self) -> dict[str, Any]:
        output: dict[str, Any] = {
            "name": self.name,
            "value": significant(self.value),
            "unit": self.unit,
            "better": "lower" if self.unit in ("ms", "s", "MB") else "higher",
        }
        if self.at_least is not None:
            output["target"] = {"at_least": self.at_least}
        elif self.below is not None:
            output["target"] = {"below": self.below}
        if self.reached is not None:
            output["reached"] = self.reached
        return output


class Row:
    """One row of the table: figures, how they came about, and the floor beside them."""

    def __init__(self, row: str, work: str) -> None:
        self.row = row
        self.work = work
        self.figures: list[Figure] = []
        self.runs: list[dict[str, Any]] = []
        self.floor: dict[str, Any] | None = None
        self.counted: dict[str, Any] = {}

    def count(self, counted: dict[str, int]) -> None:
        """Add what a run has counted to the row's totals."""
        for name, number in counted.items():
            self.counted[name] = self.counted.get(name, 0) + number

    def as_json(self) -> dict[str, Any]:
        verdicts = [figure.reached for figure in self.figures if figure.reached is not None]
        return {
            "row": self.row,
            "work": self.work,
            "reached": all(verdicts) if verdicts else None,
            "figures": [figure.as_json() for figure in self.figures],
            "counted": self.counted,
            "floor": self.floor,
            "runs": self.runs,
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        **{f"p{part}_ms": milliseconds(ordered, part / 100) for part in (50, 95, 99)},
        "max_ms": round(ordered[-1] * 1000, 3),
    }


def milliseconds(seconds: Sequence[float], part: float) -> float:
    """The value below which `part` of `seconds` lie, in milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000, 3)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def significant(value: float) -> float:
    """Four digits are more than any of these measurements is good for."""
    return float(f"{value:.4g}")

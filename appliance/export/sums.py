"""Sums columns and histograms by a key, over rows that are read once. Pure."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from appliance.shared import histogram

Key = TypeVar("Key", bound=Hashable)
Row = Mapping[str, Any]
Buckets = dict[int, int]
DECIMALS = 3


def columns_by(
    rows: Iterable[Row], keys: Collection[Callable[[Row], Key]], columns: Collection[str]
) -> list[dict[Key, list[Any]]]:
    """Return the column sums for each function in `keys`, by the function's result."""
    sums: list[dict[Key, list[Any]]] = [{} for _ in keys]
    for row in rows:
        values = [row[name] for name in columns]
        for key, by in zip(keys, sums, strict=True):
            total = by.setdefault(key(row), [0] * len(values))
            for index, value in enumerate(values):
                total[index] += value
    return sums


def histograms_by(
    rows: Iterable[Row],
    keys: Collection[Callable[[Row], Key]],
    column: str,
    wanted: Collection[Collection[Key]],
) -> list[dict[Key, Buckets]]:
    """Return the histogram sums for each function in `keys`, by the function's result, if
    wanted."""
    sums: list[dict[Key, Buckets]] = [{} for _ in keys]
    for row in rows:
        buckets = row[column]
        for key, by, listed in zip(keys, sums, wanted, strict=True):
            result = key(row)
            if buckets and result in listed:
                add(by.setdefault(result, {}), buckets)
    return sums


def add(total: Buckets, buckets: Iterable[tuple[int, int]]) -> None:
    for bucket, count in buckets:
        total[bucket] = total.get(bucket, 0) + count


def quantile(buckets: Buckets | None, share: float) -> float | None:
    """Return seconds with DECIMALS; None without durations."""
    seconds = histogram.quantile(buckets or {}, share)
    return None if seconds is None else round(seconds, DECIMALS)

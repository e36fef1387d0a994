"""Structs of the route of rates and lags."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Unit = Literal["per second", "seconds", "bytes", "count"]


class RatesQuery(Struct, frozen=True):
    """`after`: the last of `at_ms` that the client has. If the process no longer has that sample,
    or is another process, the reply has all."""

    after: Annotated[int, Meta(ge=0, le=2**62)] | None = None


class RateSeries(Struct, frozen=True):
    """`metric`: what was sampled. `per second`: how much it rose since the sample before."""

    name: str
    title: str
    unit: Unit
    metric: str
    values: list[float]


class Rates(Struct, frozen=True):
    """Each of `values` belongs to the time at the same place in `at_ms`."""

    interval_seconds: float
    at_ms: list[int]
    series: list[RateSeries]

"""Structs of the forecast."""

from msgspec import Struct


class DiskForecast(Struct, frozen=True):
    """`days_to_full`: None if its use does not rise, or is not known for an hour yet. `of`: what is
    on it: workspace, backups, exports."""

    of: list[str]
    free_bytes: int
    size_bytes: int
    growth_bytes_per_day: float | None
    days_to_full: float | None


class StoreForecast(Struct, frozen=True):
    """`bytes`: with its write-ahead log. `days_to_full`: if only this store grew."""

    store: str
    bytes: int
    growth_bytes_per_day: float | None
    days_to_full: float | None


class Reducible(Struct, frozen=True):
    """What takes space that a command can free, or that can be archived elsewhere."""

    what: str
    bytes: int
    command: str


class Forecast(Struct, frozen=True):
    """`observed_days`: the time between the first and the last sample. The list of what can be
    reduced begins with the largest."""

    observed_days: float
    disks: list[DiskForecast]
    stores: list[StoreForecast]
    reducible: list[Reducible]

"""Structs and errors for the operations."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.scopes import Scopes
from appliance.operations.settings import Level

READ = "metrics:read"
MAINTENANCE, LOG, NOTIFY = "maintenance:write", "log:write", "notify:test"
SCOPES = Scopes(frozenset({MAINTENANCE, LOG, NOTIFY}))
"""The subsystem `maintenance` declares the scopes for all operations."""


class BeginMaintenance(Struct, frozen=True):
    """A request to begin maintenance. `until`: within the next 7 days; without a zone, UTC. Or
    `seconds`, by the appliance's clock."""

    until: Annotated[datetime, Meta(examples=["2026-12-24T18:00:00Z"])] | None = None
    reason: Annotated[str, Meta(max_length=200)] = ""
    seconds: Annotated[float, Meta(gt=0)] | None = None


class MaintenanceState(Struct, frozen=True):
    """The maintenance mode. `until`: None if maintenance is off."""

    on: bool
    until: str | None = None
    reason: str = ""


class MaintenanceRecord(msgspec.Struct, frozen=True):
    """The content for `.agentlip/maintenance.json`."""

    until_ms: int = 0
    reason: str = ""


class BadEndOfMaintenance(Invalid):
    code = "BAD_END_OF_MAINTENANCE"
    default_message = "until or seconds: the end must be within the next 7 days"
    default_hint = "agentlip maintenance on --for 30m"


class MigrationForbidden(Conflict):
    code = "MIGRATION_FORBIDDEN"
    default_message = "the stores are older than this program, and a start may not migrate them"
    default_hint = "agentlip migrate --plan; agentlip migrate --apply; then agentlipd up"


def refuse_older(migrates: bool, find: Callable[[], Sequence[str]]) -> None:
    """Refuse older stores, which `find` returns. Raise MigrationForbidden if a start may not
    migrate."""
    if not migrates and (stores := find()):
        raise MigrationForbidden(
            f"{', '.join(stores)}: older than this program, and store.migrate_at_start is false",
            details={"stores": list(stores)},
        )


class SetLogLevel(Struct, frozen=True):
    """A request to set the log level. `minutes`: how long; then, or after a restart, the
    settings apply."""

    level: Level
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class LogLevel(Struct, frozen=True):
    """The log level. `configured`: the level in the settings. `until`: None while that one
    holds."""

    level: str
    configured: str
    until: str | None = None


RatesRange = Literal["1h", "24h", "7d"]
Unit = Literal["per second", "seconds", "bytes", "count"]


class RatesQuery(Struct, frozen=True):
    """A query for rates. `after`: the last `at_ms` that the client has. If the process no longer
    has that sample, or is a new process, the reply has all samples. `range`: samples every 10
    seconds for an hour, every 5 minutes for a day, every 30 minutes for a week."""

    after: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    range: RatesRange = "1h"


class RateSeries(Struct, frozen=True):
    """A sampled metric over time. `metric`: what was sampled. `per second`: the rise since the
    sample before."""

    name: str
    title: str
    unit: Unit
    metric: str
    values: list[float]


class Rates(Struct, frozen=True):
    """Rates by time. Each entry in `values` belongs to the time at the matching place in
    `at_ms`."""

    interval_seconds: float
    at_ms: list[int]
    series: list[RateSeries]


class UsageSeries(Struct, frozen=True):
    """A disk's or a store's bytes over time; null where they were not known."""

    name: str
    bytes: list[int | None]


class DiskForecast(Struct, frozen=True):
    """A disk's forecast. `days_to_full`: None if usage does not rise, or is not known for an
    hour yet. `of`: what is on the disk: workspace, backups, exports."""

    of: list[str]
    free_bytes: int
    size_bytes: int
    growth_bytes_per_day: float | None
    days_to_full: float | None


class StoreForecast(Struct, frozen=True):
    """A store's forecast. `bytes`: with the write-ahead log. `days_to_full`: if only this store
    grew."""

    store: str
    bytes: int
    growth_bytes_per_day: float | None
    days_to_full: float | None


class Reducible(Struct, frozen=True):
    """Data that a command can free, or that can be archived elsewhere."""

    what: str
    bytes: int
    command: str


ForecastRange = Literal["1h", "14d"]


class ForecastQuery(Struct, frozen=True):
    """A query for a forecast. `range`: the samples that make the trend: one every 5 minutes for an
    hour, since the start, or one an hour for two weeks."""

    range: ForecastRange = "14d"


class Forecast(Struct, frozen=True):
    """When disks will be full. `observed_days`: the time between the first and the last sample.
    The list with reducible data begins with the largest. `at_ms`: the samples' times, to which
    each entry in `usage` belongs."""

    observed_days: float
    disks: list[DiskForecast]
    stores: list[StoreForecast]
    reducible: list[Reducible]
    at_ms: list[int]
    usage: list[UsageSeries]


Via = Literal["outbox", "direct", "hub"]


class NotifyTest(Struct, frozen=True):
    """A request for a test message. `direct`: without the outbox, as when the outbox itself
    fails."""

    direct: bool = False


class NotifyResult(Struct, frozen=True):
    """A send's result. `via`: what took the message; `direct` and `hub` have delivered the
    message, `outbox` too, unless the first attempt had a `problem`; the outbox tries again.
    None: nothing took the message."""

    to: str
    via: Via | None
    problem: str | None = None


class NotifyTested(Struct, frozen=True):
    """A finished test. `id`: each send has an id that begins with this one."""

    id: str
    results: list[NotifyResult]


class Notice(Struct, frozen=True):
    """A message, as webhooks get it. `workspace`: its folder's name."""

    id: str
    workspace: str
    at: str
    subject: str
    text: str

    def id_for(self, to: str) -> str:
        """Return the destination's id for this message, which stays stable across retries."""
        return f"{self.id}_{hashlib.sha256(to.encode()).hexdigest()[:8]}"


class NothingToNotify(Conflict):
    code = "NOTIFY_OFF"
    default_message = "no destination is set for messages to the operator"
    default_hint = "set notify.to in agentlip.toml, then: agentlipd restart"

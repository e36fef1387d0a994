"""Structs of the log's level."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.scopes import Scopes
from appliance.logs.settings import Level

READ, WRITE = "metrics:read", "log:write"
SCOPES = Scopes(frozenset({WRITE}))


class SetLogLevel(Struct, frozen=True):
    """`minutes`: after them, or after a restart, the level is that of the settings again."""

    level: Level
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class LogLevel(Struct, frozen=True):
    """`configured`: the level of the settings. `until`: None while that one holds."""

    level: str
    configured: str
    until: str | None = None

"""Settings of the log."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Level = Literal["debug", "info", "warning", "error"]
RotateBytes = Annotated[int, Meta(ge=65_536)]


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[log]: JSON lines on standard output."""

    level: Level = "info"  # lowest level that is written; for some time: `agentlip log level`
    access: Literal["errors", "all", "off"] = "errors"  # requests for which a line is written
    slow_seconds: Annotated[float, Meta(ge=0.001)] = 1.0
    """A request or transaction that takes at least as long is logged as a warning, whatever
    `access` is; long polls are not."""

    rotate_bytes: RotateBytes = 10_485_760  # size above which the log gets a new file; 7 are kept

"""[log] and [notify]."""

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


_FORMATS = "json|discord|slack|googlechat|teams|gotify|ntfy|telegram|pushover"
NotifyTo = Annotated[str, Meta(max_length=500, pattern=(
    rf"^(mailto:[^@\s,]+@[^@\s,]+|(({_FORMATS})\+)?https?://\S+|topic:[^/]{{1,100}}/.{{1,150}})$"
))]  # fmt: skip
QuietHours = Annotated[
    str, Meta(pattern=r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d( [A-Za-z0-9_/+-]+)?)?$")
]


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[notify]: messages when a problem begins or ends, and when a question waits for a person."""

    to: Annotated[tuple[NotifyTo, ...], Meta(max_length=10)] = ()
    """destinations for messages: mailto:ADDRESS, a chat service or webhook URL, or
    topic:CHANNEL/TITLE in the hub"""
    severity_min: Literal["warning", "error"] = "warning"  # lowest severity that is sent
    repeat_seconds: Annotated[float, Meta(ge=0, le=31_622_400)] = 86_400.0
    """seconds after which a problem or question that lasts is sent again; 0: never"""
    quiet_hours: QuietHours = ""
    """time in which only errors are sent, and the rest afterwards: `22:00-07:00 Europe/Vienna`"""

    ping: Annotated[str, Meta(max_length=500, pattern=r"^(https?://\S+)?$")] = ""
    """URL to request after each backup, verification or job that succeeded, at most once in 10 s;
    a service elsewhere that misses the requests alerts you"""

    @property
    def addresses(self) -> list[str]:
        """Return the mail addresses in `to`."""
        return [to.partition(":")[2] for to in self.to if to.startswith("mailto:")]


def kind_of(to: str) -> str:
    """Return a destination's scheme, without its format."""
    return to.partition(":")[0].rpartition("+")[2]

"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal["events", "broker", "courier", "inbox", "outbox"]
LOGS = ("events", "broker", "courier", "inbox", "outbox")

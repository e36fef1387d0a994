"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal["events", "relay", "broker", "bus", "courier", "inbox", "outbox"]
LOGS = ("events", "relay", "broker", "bus", "courier", "inbox", "outbox")

"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal["events", "audit", "relay", "broker", "bus", "courier", "inbox", "outbox"]
LOGS = ("events", "audit", "relay", "broker", "bus", "courier", "inbox", "outbox")

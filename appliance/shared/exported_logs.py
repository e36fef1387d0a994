"""Generated from the declarations of stores by `just models`: the exported logs."""

from typing import Literal

LogKind = Literal["events", "relay", "audit", "broker", "bus", "courier", "inbox", "outbox", "runs"]
LOGS = ("events", "relay", "audit", "broker", "bus", "courier", "inbox", "outbox", "runs")

"""Defines the metrics of woken agents."""

from appliance.kernel.metrics import counter

turns = counter(
    "agents_turns_total", "Turns that agents reported, by outcome", ("outcome",),
    zeros=("done", "failed", "late", "stopped"),
)  # fmt: skip
escalated = counter("agents_escalated_total", "Inbox entries that no turn settled")

"""Defines the metrics of inboxes."""

from appliance.kernel.metrics import counter

settled = counter(
    "entries_settled_total", "Inbox entries that were settled, by how", ("how",),
    zeros=("acknowledge", "decline"),
)  # fmt: skip
overdue = counter(
    "entries_overdue_total", "Deadlines of inbox entries that passed without an acknowledgement"
)

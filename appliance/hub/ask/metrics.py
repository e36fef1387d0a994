"""Defines the ask metrics."""

from appliance.kernel.metrics import counter

created = counter("ask_created_total", "Asks that were created")
settled = counter(
    "ask_settled_total", "Asks that were settled, by how", ("how",), zeros=("deadline",)
)

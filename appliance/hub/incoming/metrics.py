"""Defines the metrics of incoming webhooks."""

from appliance.kernel.metrics import counter

REASONS = ("credential", "stale", "payload", "size", "unavailable")
accepted = counter("incoming_accepted_total", "Deliveries that were stored", ("template",))
duplicates = counter("incoming_duplicates_total", "Repeated deliveries", ("template",))
refused = counter("incoming_refused_total", "Refused deliveries", ("reason",), zeros=REASONS)

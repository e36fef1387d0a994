"""Defines the plugin metrics. Plugin names come from the settings, so the label set is closed."""

from appliance.kernel.metrics import counter, histogram

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

messages = counter(
    "plugins_messages_total", "Messages given to a plugin, by outcome",
    ("plugin", "outcome"),
)  # fmt: skip
seconds = histogram(
    "plugins_message_seconds", "Seconds a plugin took for one message", ("plugin",), BUCKETS
)
stale = counter(
    "plugins_stale_total", "Results not stored because the message had changed", ("plugin",)
)
stored = counter("plugins_items_total", "Enrichments and attachments stored", ("plugin",))
starts = counter("plugins_starts_total", "Processes started for a plugin", ("plugin",))

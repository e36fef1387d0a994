"""Defines the metrics of A2A."""

from appliance.kernel.metrics import counter

METHODS = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask")
OTHER = "other"
requests = counter(
    "a2a_requests_total", "A2A requests, by method and outcome", ("method", "outcome")
)

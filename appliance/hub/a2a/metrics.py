"""Defines the metrics of A2A."""

from appliance.kernel.metrics import counter

OTHER = "other"  # a method that does not exist, or a body that is not a request
requests = counter(
    "a2a_requests_total", "A2A requests, by method and outcome", ("method", "outcome")
)

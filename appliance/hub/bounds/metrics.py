"""Defines the metrics of bounds. `hub/metrics.py` has the refusals."""

from appliance.kernel.metrics import counter, gauge

paused = gauge("bounds_paused", "Pauses in effect, by cause", ("cause",))
asked = counter("bounds_asked_total", "Questions whether a topic may go on")

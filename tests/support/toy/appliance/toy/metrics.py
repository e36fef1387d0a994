"""What is counted of notes."""

from appliance.kernel.metrics import counter

added = counter("toy_notes_total", "Notes added")

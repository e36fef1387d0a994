"""What is counted of asks."""

from appliance.kernel.metrics import counter

created = counter("asks_created_total", "Asks that were created")
settled = counter("asks_settled_total", "Asks that were settled, by how", ("how",))

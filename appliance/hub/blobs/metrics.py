"""Defines the metrics of files that agents put."""

from appliance.kernel.metrics import counter, gauge

put_bytes = counter("blobs_put_bytes_total", "Bytes of files that were put, also repeatedly")
refused = counter(
    "blobs_refused_total",
    "Files that were refused, by reason",
    ("reason",),
    zeros=("quota", "busy"),
)
collected = counter("blobs_collected_total", "Files that were removed because nothing named them")
count = gauge("blobs_files", "Files that agents have put, and that are kept")
size = gauge("blobs_bytes", "Bytes of these files")
waiting = gauge("blobs_removed_files", "Removed files whose content is not deleted yet")

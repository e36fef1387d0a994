"""Defines the metrics of files that agents put."""

from appliance.kernel.metrics import counter, gauge

put_bytes = counter("blobs_put_bytes_total", "Bytes in put files, also repeatedly")
refused = counter(
    "blobs_refused_total", "Refused files, by reason", ("reason",), zeros=("quota", "busy")
)
collected = counter("blobs_collected_total", "Removed files, because nothing named them")
count = gauge("blobs_files", "Kept files")
size = gauge("blobs_bytes", "Bytes of these files")
waiting = gauge("blobs_removed_files", "Removed files whose content is not deleted yet")

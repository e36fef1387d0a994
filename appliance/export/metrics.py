"""Defines the metrics for exports, downloads and reports."""

from appliance.kernel.metrics import counter, gauge

rounds = counter("export_rounds_total", "Rounds of the segment exporter", ("outcome",),
                 zeros=("ok", "failed"))  # fmt: skip
rows = counter("export_rows_total", "Events written to segments")
written = counter("export_bytes_total", "Bytes of segments written")
waiting = gauge("export_waiting_events", "Events that are not exported yet")
log_rows = counter("export_log_rows_total", "Rows of a log written to segments", ("log",))
log_last = gauge("export_log_last_row", "Newest exported row of a log", ("log",))
log_waiting = gauge("export_log_waiting_rows", "Rows of a log not exported yet", ("log",))
log_missing = counter(
    "export_log_missing_rows_total", "Rows removed from a log before their export", ("log",)
)
sent = counter("export_segment_sent_bytes_total", "Bytes of segments and snapshots sent to readers")

"""Defines the metrics for exports, downloads and reports."""

from appliance.kernel.metrics import counter, gauge

rounds = counter("export_rounds_total", "Segment exporter rounds", ("outcome",),
                 zeros=("ok", "failed"))  # fmt: skip
rows = counter("export_rows_total", "Events written to segments")
written = counter("export_bytes_total", "Segment bytes written")
waiting = gauge("export_waiting_events", "Events that are not exported yet")
log_rows = counter("export_log_rows_total", "Log rows written to segments", ("log",))
log_last = gauge("export_log_last_row", "A log's newest exported row", ("log",))
log_waiting = gauge("export_log_waiting_rows", "Log rows not exported yet", ("log",))
log_missing = counter(
    "export_log_missing_rows_total", "Rows removed from a log before their export", ("log",)
)
sent = counter("export_segment_sent_bytes_total", "Segment and snapshot bytes sent to readers")

"""Metrics of exports, downloads and reports."""

from appliance.kernel.metrics import counter, gauge

rounds = counter("jobs_export_rounds_total", "Rounds of the segment exporter", ("outcome",))
rows = counter("jobs_export_rows_total", "Events written to segments")
written = counter("jobs_export_bytes_total", "Bytes of segments written")
last_event = gauge("jobs_export_last_event_id", "Newest exported event")
waiting = gauge("jobs_export_waiting_events", "Events that are not exported yet")
log_rows = counter("jobs_export_log_rows_total", "Rows of a log written to segments", ("log",))
log_last = gauge("jobs_export_log_last_row", "Newest exported row of a log", ("log",))
log_waiting = gauge("jobs_export_log_waiting_rows", "Rows of a log not exported yet", ("log",))
log_missing = counter(
    "jobs_export_log_missing_rows_total", "Rows removed from a log before their export", ("log",)
)
downloads = counter(
    "jobs_segment_downloads_total", "Downloads of segments and tables of snapshots", ("kind",)
)
sent = counter("jobs_segment_sent_bytes_total", "Bytes of segments and snapshots sent to readers")
reports = counter("jobs_reports_total", "Reports requested over HTTP", ("outcome",))

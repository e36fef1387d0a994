"""Defines the metrics for runs and for each job's latest reported run.

`job_name` is the name of a job that has reported a run; there are at most JOBS_MAX. (Prometheus
uses `job` for its targets.)"""

from appliance.kernel.metrics import counter, gauge, histogram

LABELS = ("job_name",)
finished = gauge(
    "jobs_last_run_timestamp_seconds", "When a job's latest run ended, in Unix time", LABELS
)
succeeded = gauge(
    "jobs_last_success_timestamp_seconds",
    "When a job's latest run without an error ended, in Unix time; 0: never",
    LABELS,
)
seconds = gauge("jobs_last_run_seconds", "How long a job's latest run took", LABELS)
rows = gauge("jobs_last_run_rows", "Rows that a job's latest run counted", LABELS)
failed = gauge("jobs_last_run_failed", "1 if a job's latest run failed", LABELS)
attempts = counter("jobs_attempts_total", "Attempts that ended, by state", ("state",))
skipped = counter("jobs_skipped_total", "Scheduled runs skipped because another run had not ended")
running = gauge("jobs_running", "Attempts that run")
start_seconds = histogram(
    "jobs_start_seconds", "Time from the moment a run is due until its process has started"
)

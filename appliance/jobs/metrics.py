"""Defines the metrics for runs and for each job's latest reported run.

`job_name` is the name of a job that has reported a run; there are at most JOBS_MAX. (Prometheus
uses `job` for its targets.)"""

from appliance.kernel.metrics import counter, gauge, histogram

LABELS = ("job_name",)
finished = gauge(
    "jobs_last_run_timestamp_seconds", "When the latest run of a job ended, in Unix time", LABELS
)
succeeded = gauge(
    "jobs_last_success_timestamp_seconds",
    "When the latest run of a job without an error ended, in Unix time; 0: never",
    LABELS,
)
seconds = gauge("jobs_last_run_seconds", "How long the latest run of a job took", LABELS)
rows = gauge("jobs_last_run_rows", "Rows that the latest run of a job counted", LABELS)
failed = gauge("jobs_last_run_failed", "1 if the latest run of a job failed", LABELS)
attempts = counter("jobs_attempts_total", "Attempts that ended, by state", ("state",))
skipped = counter("jobs_skipped_total", "Scheduled runs that were skipped because of another run")
running = gauge("jobs_running", "Attempts that run")
start_seconds = histogram(
    "jobs_start_seconds", "Time from the moment a run is due until its process has started"
)

"""Metrics of the latest runs of jobs. `job` is a name of a job; there are at most JOBS_MAX."""

from appliance.kernel.metrics import gauge

finished = gauge(
    "jobs_last_run_timestamp_seconds", "When the latest run of a job ended, in Unix time", ("job",)
)
succeeded = gauge(
    "jobs_last_success_timestamp_seconds",
    "When the latest run of a job without an error ended, in Unix time; 0: never",
    ("job",),
)
seconds = gauge("jobs_last_run_seconds", "How long the latest run of a job took", ("job",))
rows = gauge("jobs_last_run_rows", "Rows that the latest run of a job counted", ("job",))
failed = gauge("jobs_last_run_failed", "1 if the latest run of a job failed", ("job",))

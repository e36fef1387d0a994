"""Defines the backup metrics. Times are Unix times in seconds, 0 if there is none yet."""

from appliance.kernel.metrics import counter, gauge

enabled = gauge("backup_enabled", "1 if backups are made on a schedule")
backups = gauge("backup_readable", "Backups that can be read")
last_success = gauge("backup_last_success_timestamp_seconds", "Cut of the newest backup")
age = gauge("backup_age_seconds", "Newest backup's age, 0 without one")
stored_bytes = gauge("backup_stored_bytes", "Newest backup's size on disk")
seconds = gauge("backup_duration_seconds", "How long the newest backup took to make")
pause = gauge("backup_pause_seconds", "How long no store could write during the newest backup")
verified = gauge(
    "backup_last_verification_timestamp_seconds",
    "When the newest verified backup was verified",
)
verification = gauge(
    "backup_verification_result",
    "1 for the newest verification's result: good, bad or inconclusive",
    ("result",),
)
failures = counter("backup_failures_total", "Phases that failed", ("phase",))
failing = gauge("backup_failing", "1 while a phase's last attempt failed", ("phase",))
targets = gauge("backup_target_failing", "1 while the last upload to a target failed", ("target",))
uploaded = gauge(
    "backup_target_last_upload_timestamp_seconds",
    "Cut time of the newest backup that a target has completely",
    ("target",),
)
RESULTS = ("good", "bad", "inconclusive")
for _result in RESULTS:
    verification.labels(_result)
PHASES = ("create", "verify", "prune", "upload")
for _phase in PHASES:
    failures.labels(_phase)
    failing.labels(_phase)

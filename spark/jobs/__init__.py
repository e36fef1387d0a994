"""JOBS: the table of jobs. A job is a folder of three files: schema, transforms, job."""

from spark.jobs.activity import job as activity
from spark.jobs.audit import job as audit
from spark.jobs.ingest import job as ingest
from spark.request import Job

JOBS = {
    "ingest": Job(ingest.run, "segments to typed tables with history (silver)", "bronze"),
    "activity": Job(activity.run, "who did what, where, on which day (gold)", "silver", days=True),
    "audit": Job(
        audit.run, "the log alone against a snapshot of the tables", "bronze", snapshot=True
    ),
}

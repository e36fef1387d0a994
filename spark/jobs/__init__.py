"""JOBS: the table of jobs. A job is a folder of three files: schema, transforms, job."""

from spark.jobs.activity import job as activity
from spark.jobs.audit import job as audit
from spark.jobs.ingest import job as ingest
from spark.request import JobDefinition

JOBS = {
    "ingest": JobDefinition(
        ingest.run, "ingest segments into typed tables with history (silver)", "bronze"
    ),
    "activity": JobDefinition(
        activity.run, "activity by day, channel, topic and sender (gold)", "silver", days=True
    ),
    "audit": JobDefinition(
        audit.run, "compare the log with a snapshot of the tables", "bronze", snapshot=True
    ),
}

"""JOBS: the table of jobs. A job is a folder of three files: schema, transforms, job."""

from appliance.shared.exported_logs import LOGS
from spark.jobs.delivery import plan as delivery
from spark.locations import location
from spark.request import JobArgument, JobDefinition, parse_day
from spark.verification import QUARANTINE

SKIP = JobArgument(
    QUARANTINE, "skip bad segments and report them; each is tried again when it changes"
)
OBJECTIVE = JobArgument(
    "objective",
    "objectives of stages, in seconds: accept_to_deliver=5,deliver_to_ack=60",
    "STAGE=SECONDS,…",
    delivery.objectives,
    delivery.OBJECTIVES,
)
BEFORE = JobArgument(
    "before",
    "archive the days before this one: 2026-02-01, or -90 for 90 days ago",
    "DAY",
    parse_day,
    required=True,
)
JOBS = {
    "ingest": JobDefinition(
        "ingest segments into typed tables with history (silver)", arguments=(SKIP,)
    ),
    "activity": JobDefinition(
        "activity by day, channel, topic and sender (gold)",
        reads_tables=True,
        has_days=True,
        arguments=(SKIP,),
    ),
    "audit": JobDefinition("compare the log with a snapshot of the tables", snapshot=True),
    "delivery": JobDefinition(
        "latency, attempts and dead letters of outbox, broker, courier and runs by day (gold)",
        has_days=True,
        logs=delivery.LOGS,
        arguments=(SKIP, OBJECTIVE),
    ),
    "archive": JobDefinition(
        "copy old segments of all logs to an archive with a catalogue",
        logs=LOGS,
        arguments=(BEFORE,),
    ),
    "erase": JobDefinition(
        "take message contents out of segments and tables, with a certificate",
        arguments=(
            JobArgument("order", "the order: a JSON file", "FILE", location),
            JobArgument(
                "verify", "compare the files with a certificate again", "CERTIFICATE", location
            ),
            JobArgument("dry-run", "only count what the order selects"),
        ),
    ),
    "digest": JobDefinition(
        "keywords of topics, similar topics, and who answers whom (gold)",
        reads_tables=True,
        arguments=(SKIP,),
    ),
}

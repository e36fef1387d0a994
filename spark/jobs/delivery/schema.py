"""The columns that the delivery job reads and writes, its objectives and its limits."""

from spark import schemas
from spark.jobs.delivery import plan

OUTPUT = schemas.tables(plan.SCHEMA)
ACCEPT_TO_DELIVER, DELIVER_TO_ACK, ACCEPT_TO_ACK = plan.OBJECTIVES
NAMES = {  # those that each log has
    "outbox": ("send.accepted", "attempt.delivered", "attempt.failed", "send.dead", "send.aborted",
               "send.requeued"),
    "broker": ("message.accepted", "delivery.sent", "delivery.acked", "delivery.failed",
               "delivery.dead"),
    "courier": ("envelope.acked", "envelope.failed", "envelope.rejected", "envelope.expired",
                "envelope.dead"),
    "runs": ("attempt.succeeded", "attempt.failed", "attempt.cancelled", "attempt.lost"),
}  # fmt: skip
UNKNOWN_NAMES_MAX = 100  # that are counted by name
COUNTS = ("accepted", "delivered", "acked", "attempts", "failed", "dead")
PERCENTS = (50, 95, 99)
CAUSES_MAX = 100  # causes per day, log and destination; rarer ones are counted together
CAUSE_CHARACTERS_MAX = 200
EXAMPLE_CHARACTERS_MAX = 1_000
OTHER_CAUSES = "other causes"
NO_CAUSE = "unknown"

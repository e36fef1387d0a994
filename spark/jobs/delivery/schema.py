"""The columns that the delivery job reads and writes, its objectives and its limits."""

from spark import schemas
from spark.jobs.delivery import plan

OUTPUT = schemas.tables(plan.SCHEMA)
ACCEPT_TO_DELIVER, DELIVER_TO_ACK, ACCEPT_TO_ACK = plan.OBJECTIVES
COUNTS = ("accepted", "delivered", "acked", "attempts", "failed", "dead")
PERCENTS = (50, 95, 99)
CAUSES_MAX = 100  # causes per day, log and destination; rarer ones are counted together
CAUSE_CHARACTERS_MAX = 200
EXAMPLE_CHARACTERS_MAX = 1_000
OTHER_CAUSES = "other causes"
NO_CAUSE = "unknown"

"""The columns that the delivery job reads and writes, its objectives and its limits."""

from spark import schemas
from spark.jobs.delivery import plan

NAME = plan.SCHEMA
OUTPUT = schemas.tables(NAME)
ACCEPT_TO_DELIVER, DELIVER_TO_ACK, ACCEPT_TO_ACK = (
    "accept_to_deliver", "deliver_to_ack", "accept_to_ack",
)  # fmt: skip
PAIR_DAYS = plan.PAIR_DAYS
COUNTS = ("accepted", "delivered", "acked", "attempts", "failed", "dead")
PERCENTS = (50, 95, 99)
CAUSES_MAX = 100  # causes per day, log and destination; rarer ones are counted together
CAUSE_CHARACTERS_MAX = 200
EXAMPLE_CHARACTERS_MAX = 1_000
OTHER_CAUSES = "other causes"
NO_CAUSE = "unknown"

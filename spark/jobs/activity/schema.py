"""Defines the columns that the activity job reads and writes, and its limits."""

from spark import schemas
from spark.jobs.activity.plan import SCHEMA

NAME = SCHEMA
OUTPUT = schemas.tables(NAME)
DAILY = tuple(table for table, day in schemas.partitions(NAME).items() if day)
SPAN_GAP_SECONDS_MAX = 30 * 60  # a longer gap ends an active span
REPLY_SECONDS_MAX = 86_400  # a later message does not count as a reply

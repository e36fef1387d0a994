"""The columns that the activity job reads and writes, and its limits."""

from spark import schemas

NAME = "activity-1"
OUTPUT = schemas.tables(NAME)
SPAN_GAP_SECONDS_MAX = 30 * 60  # a longer gap ends an active span
REPLY_SECONDS_MAX = 86_400  # a later message does not count as a reply

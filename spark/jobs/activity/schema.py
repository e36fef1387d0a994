"""What activity reads of silver and what it promises."""

from spark import schemas

NAME = "activity-1"
OUTPUT = schemas.tables(NAME)
SPAN_PAUSE_SECONDS = 30 * 60  # a longer pause ends an active span
REPLY_SECONDS_MAX = 86_400  # who speaks later answers nobody

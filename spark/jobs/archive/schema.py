"""Defines the limits for archived files, whose columns match the segments."""

FILE_ROWS_MAX = 1_000_000  # a file of small rows is some 100 MB
ROW_GROUP_BYTES = 16 * 1024 * 1024  # the unit that a search skips or reads
DAY, EPOCH = "archive_day", "archive_epoch"  # columns that only name folders while writing

"""What the job reads and writes, and the limits of a plugin."""

SCHEMA = "enrichment-changes-1"
RESULT = "message_id string, version bigint, line string, error string, error_line bigint"
SOURCE_BYTES_MAX = 1024 * 1024  # size of the plugin's file
CONFIG_BYTES_MAX = 64 * 1024
ITEMS_MAX = 100  # enrichments of a message
OUTPUT_BYTES_MAX = 256 * 1024  # size of the output for a message
SECONDS_MAX = 5.0  # for a message
ERRORS_LISTED_MAX = 100

"""Defines the [export] settings for segments, snapshots and reports."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[int, Meta(ge=0, le=36_500)]
Format = Literal["parquet", "jsonl"]
ROUND_SECONDS_MAX = 60.0  # between two rounds, which take no time without new rows


class ExportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[export]: the log as closed segments, for readers that never touch the database."""

    export: bool = False  # write segments while the appliance runs, in child processes
    export_dir: str = ".agentlip/export"  # segment directory, relative to the workspace
    export_format: Format = "parquet"  # segment format; parquet needs the extra [export]
    segment_rows_max: Positive = 500_000  # events per segment; a job reads one in seconds
    segment_open_seconds: Seconds = 300.0  # a segment that is not full is closed after this time
    retention_days: Days = 0  # days after which segments are removed; 0 keeps all
    archive_dir: str = ""  # archive directory; if set, only archived segments are removed
    target: str = ""  # s3://bucket/prefix where closed segments are published
    gold_dir: str = ".agentlip/gold"  # directory with job results, for reports


def round_seconds(settings: ExportSettings) -> float:
    """Return the seconds between two rounds. A round can only close a segment that is due."""
    return min(ROUND_SECONDS_MAX, settings.segment_open_seconds)

"""[jobs]: segments of the log, and what is made of them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Format = Literal["parquet", "jsonl"]


class JobsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[jobs]: the log as closed segments, for readers that never touch the database."""

    export: bool = False  # write segments while the appliance serves, in a process apart
    export_dir: str = ".agentlip/export"  # relative to the workspace; a volume for much of it
    export_format: Format = "parquet"  # parquet needs the extra [export]; jsonl needs nothing
    export_seconds: Seconds = 60.0  # between two looks for events that wait
    export_seconds_max: Seconds = 3600.0  # a round that takes longer is ended, and begun again
    export_lag_warning_seconds: Seconds = 3600.0  # the doctor speaks when events wait so long
    segment_rows_max: Positive = 500_000  # events of a segment; a job reads one in a few seconds
    segment_bytes_max: Positive = 256 * 1024 * 1024  # of their payload; bounds a job's memory
    segment_open_seconds: Seconds = 300.0  # a piece that is not full waits so long for more
    compact_count_min: Positive = 8  # neighbours of one day that are worth writing as one
    replaced_seconds: Annotated[float, Meta(ge=0)] = 86_400.0  # readers may still read the former
    keep_days: Annotated[int, Meta(ge=0)] = 0  # segments older than that are removed; 0: never
    snapshots_kept: Annotated[int, Meta(ge=0)] = 5  # the newest; older ones are removed; 0: all
    segments_page_max: Positive = 1_000  # segments of one listing
    download_chunk_bytes: Positive = 256 * 1024  # read from the disk between two turns
    gold_dir: str = ".agentlip/gold"  # where the jobs leave their results; reports read it
    report_rows_max: Positive = 1_000  # rows of each list in a report over HTTP
    report_seconds_max: Seconds = 60.0  # a report that takes longer is given up
    reports_max: Positive = 2  # reports made at the same time; more are asked to come again

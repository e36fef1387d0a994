"""Defines the export and report errors. Each has a separate exit code."""

from typing import ClassVar

from appliance.kernel.errors import ApplianceError, Conflict, Invalid, Missing, Unavailable


class ExportError(ApplianceError):
    """An export or report error, with the exit code for scripts."""

    exit_code: ClassVar[int]


class SegmentMissing(Missing, ExportError):
    code = "SEGMENT_MISSING"
    default_message = "a segment is missing, but its manifest exists"
    default_hint = "run agentlip export verify DIR to list all problems"
    exit_code = 10


class TablesMissing(SegmentMissing):
    code = "TABLES_MISSING"
    default_message = "the directory contains no job tables"
    default_hint = (
        "run the job first: agentlip jobs run JOB; without such a job: docs/how-to/spark.md"
    )


class SegmentTorn(Invalid, ExportError):
    code = "SEGMENT_TORN"
    default_message = "a segment or its manifest is truncated or malformed"
    default_hint = "run agentlip export verify DIR to list all problems"
    exit_code = 11


class WrongHash(Invalid, ExportError):
    code = "WRONG_HASH"
    default_message = "a segment has another hash than its manifest"
    default_hint = (
        "restore the segment from a copy, or remove segment and manifest and export again"
    )
    exit_code = 12


class SchemaVersionUnknown(Invalid, ExportError):
    code = "SCHEMA_VERSION_UNKNOWN"
    default_message = "a manifest has an unknown schema version"
    default_hint = "use the newer agentlip that wrote it, or another directory"
    exit_code = 13


class EmptyRange(Missing, ExportError):
    code = "EMPTY_RANGE"
    default_message = "the range contains no data"
    default_hint = "use other dates, or run the job for these dates"
    exit_code = 14


class ReportTooLarge(Invalid, ExportError):
    code = "REPORT_TOO_LARGE"
    default_message = "one day has more data than a report holds"
    default_hint = "choose a channel: agentlip report html --out report.html --channel NAME"
    exit_code = 20


class OutputNotWritable(Unavailable, ExportError):
    code = "OUTPUT_NOT_WRITABLE"
    default_message = "the output cannot be written"
    default_hint = "check the owner and the free space: ls -ld DIR; df -h DIR"
    exit_code = 15


class OutputBusy(Conflict, ExportError):
    code = "EXPORT_RUNNING"
    default_message = "another export is writing to the directory"
    default_hint = "wait until it ends, or use another directory with --out"
    exit_code = 16


class OtherHistory(Conflict, ExportError):
    code = "OTHER_HISTORY"
    default_message = "the directory contains another workspace's log, or newer events"
    default_hint = "use another directory with --out"
    exit_code = 17


class LibraryMissing(Unavailable, ExportError):
    code = "LIBRARY_MISSING"
    default_message = "a required library is not installed"
    default_hint = "pip install 'agentlip[export]', the image agentlip-export, or --format jsonl"
    exit_code = 18


class BadEvent(Invalid, ExportError):
    code = "BAD_EVENT"
    default_message = "an event cannot be exported"
    default_hint = "agentlip doctor --run events.sequence,events.scope"
    exit_code = 19

"""What may go wrong with an export or a report; each has an exit code of its own."""

from typing import ClassVar

from appliance.kernel.errors import ApplianceError, Conflict, Invalid, Missing, Unavailable


class ExportError(ApplianceError):
    """`exit_code` tells a script which of them it was."""

    exit_code: ClassVar[int]


class SegmentMissing(Missing, ExportError):
    code = "SEGMENT_MISSING"
    sentence = "a manifest speaks of a segment that is not there"
    advice = "agentlip export verify DIR names all that is wrong"
    exit_code = 10


class TablesMissing(SegmentMissing):
    code = "TABLES_MISSING"
    sentence = "no job has left its tables there"
    advice = "run the job first: docker run … activity --in … --out … --from … --to …"


class SegmentTorn(Invalid, ExportError):
    code = "SEGMENT_TORN"
    sentence = "a segment or its manifest is cut off or malformed"
    advice = "agentlip export verify DIR names all that is wrong"
    exit_code = 11


class WrongHash(Invalid, ExportError):
    code = "WRONG_HASH"
    sentence = "a segment holds other bytes than its manifest says"
    advice = "take the segment from a copy, or remove it with its manifest and export anew"
    exit_code = 12


class SchemaVersionUnknown(Invalid, ExportError):
    code = "SCHEMA_VERSION_UNKNOWN"
    sentence = "a manifest has a schema version that this program does not know"
    advice = "a newer agentlip wrote it: use that one, or another directory"
    exit_code = 13


class EmptyRange(Missing, ExportError):
    code = "EMPTY_RANGE"
    sentence = "there is nothing in that range"
    advice = "ask for other dates, or run the job that makes them"
    exit_code = 14


class OutputNotWritable(Unavailable, ExportError):
    code = "OUTPUT_NOT_WRITABLE"
    sentence = "the output can't be written"
    advice = "look at owner and free space: ls -ld DIR; df -h DIR"
    exit_code = 15


class OutputBusy(Conflict, ExportError):
    code = "EXPORT_RUNNING"
    sentence = "another export writes into that directory"
    advice = "wait for it, or name another directory with --out"
    exit_code = 16


class OtherHistory(Conflict, ExportError):
    code = "OTHER_HISTORY"
    sentence = "that directory holds the log of another workspace, or a longer one"
    advice = "name another directory with --out"
    exit_code = 17


class LibraryMissing(Unavailable, ExportError):
    code = "LIBRARY_MISSING"
    sentence = "this needs a library that is not installed"
    advice = "pip install 'agentlip[export]', or --format jsonl"
    exit_code = 18


class BadEvent(Invalid, ExportError):
    code = "BAD_EVENT"
    sentence = "an event can't be exported"
    advice = "agentlip doctor --run events.sequence,events.scope"
    exit_code = 19

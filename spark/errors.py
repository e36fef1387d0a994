"""Defines the errors that end a job, each with a message, a hint and its own exit code."""


class JobError(Exception):
    """An error with an exit code for scripts; 10 to 16 match `agentlip export`."""

    exit_code = 70
    hint = "run it again with --verbose for the engine's own words"

    def __init__(self, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.message = sentence
        self.hint = hint or self.hint

    def __reduce__(self) -> tuple[type["JobError"], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class Interrupted(JobError):
    exit_code = 130
    hint = "run it again: it continues from the last published version"


class Usage(JobError):
    exit_code = 2
    hint = "run it with --help"


class SegmentMissing(JobError):
    exit_code = 10
    hint = "copy the segment beside its manifest again, or export again to another directory"


class SegmentTorn(JobError):
    exit_code = 11
    hint = "copy the segment and its manifest again from where they were exported"


class WrongHash(JobError):
    exit_code = 12
    hint = "take the segment from a copy, or remove it with its manifest and export again"


class SchemaVersionUnknown(JobError):
    exit_code = 13
    hint = "a newer program wrote it: use the image of that version"


class ColumnsDiffer(SchemaVersionUnknown):
    hint = "export these segments again, or skip them: ingest --quarantine-segments"


class EmptyRange(JobError):
    exit_code = 14
    hint = "ask for other dates, or ingest what was exported since"


class OutputNotWritable(JobError):
    exit_code = 15
    hint = "look at owner and free space: ls -ld DIR; df -h DIR (the image runs as uid 185)"


class OutputBusy(JobError):
    exit_code = 16
    hint = "wait for it, or name another directory with --out"


class SourceUnreachable(JobError):
    exit_code = 20
    hint = "look whether the appliance answers there: curl URL/health"


class StorageUnreachable(SourceUnreachable):
    hint = "look at AWS_ENDPOINT_URL, the keys and the bucket: docs/how-to/spark.md"


class EngineUnreachable(JobError):
    exit_code = 21
    hint = "look at the name and port of --master, and whether workers are there"


class ChecksFailed(JobError):
    exit_code = 22
    hint = "the failed checks are named above; nothing was published"


class DifferencesFound(JobError):
    exit_code = 23
    hint = "read the table `differences` that the audit left in its output"

"""Which segments ingest has to take, decided from manifests alone."""

import re
from typing import Any, NamedTuple

from spark import segments
from spark.errors import JobError, SchemaOutdated
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.tables import Dataset

SCHEMA = "silver-2"
QUARANTINE = "quarantine-segments"  # the job's own argument
SEGMENT = re.compile(r"(?P<epoch>.*)/segment-(?P<first>\d+)-(?P<last>\d+)", re.DOTALL)


class Export(NamedTuple):
    """The live segments of the log, and the errors of manifests that can't be read."""

    folder: Location
    segments: list[segments.SegmentFile]
    bad: dict[Location, JobError]


def up_to_date(ask: JobRequest) -> bool:
    """Whether the published version has every segment. With --quarantine-segments, one that was
    skipped counts until its files change."""
    dataset = Dataset(ask.out / "silver", SCHEMA)
    if dataset.older() is not None:
        return False
    published = dataset.current()
    if published is None:
        return False
    export = exported(ask)
    done = set(published.memory["segments"])
    lacking = [
        *export.bad,
        *(segment.manifest for segment in export.segments if segment.name not in done),
    ]
    if lacking and not ask.options.get(QUARANTINE):
        return False
    former = published.memory.get("skipped", {})
    return all(former.get(name) == state for name, state in states(export, lacking).items())


def warnings(lake: Location) -> list[CheckResult]:
    """The failed checks of the newest run of ingest, which hold until it publishes again."""
    published = Dataset(lake / "silver", SCHEMA).current()
    return [CheckResult(*row) for row in published.memory.get("warnings", ())] if published else []


def exported(ask: JobRequest) -> Export:
    folder = ask.source / "events"
    bad: dict[Location, JobError] = {}
    skip = bad if ask.options.get(QUARANTINE) else None
    return Export(folder, segments.manifests(folder, bad=skip), bad)


def states(export: Export, skipped: list[Location]) -> dict[str, Any]:
    """The state of the files of skipped segments, by manifest."""
    return {str(segment.relative_to(export.folder)): segments.state(segment) for segment in skipped}


def require_all(older: dict[str, Any], export: Export) -> None:
    """Refuse to make tables again if a segment that the former ones were made of is missing."""
    missing = [name for name in older.get("segments", []) if not _is_there(name, export.segments)]
    if missing:
        raise SchemaOutdated(
            f"the tables have an older schema, and {len(missing):,} segments they were made of are"
            f" missing: {', '.join(missing[:5])}",
            "put the missing segments back beside the others, or remove the directory silver of"
            " the lake to make tables of the remaining segments",
        )


def _is_there(name: str, exported: list[segments.SegmentFile]) -> bool:
    """Whether a segment has the events of the named one: itself, or the result of a compaction."""
    parts = SEGMENT.fullmatch(name)
    return parts is not None and any(
        segment.epoch == parts["epoch"]
        and segment.first <= int(parts["first"])
        and int(parts["last"]) <= segment.last
        for segment in exported
    )

"""Which segments ingest has to take, decided from manifests alone."""

from typing import Any, NamedTuple

from spark import segments
from spark.errors import JobError
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.tables import Dataset

SCHEMA = "silver-2"
QUARANTINE = "quarantine-segments"  # the job's own argument


class Export(NamedTuple):
    """The live segments of the log, and the errors of manifests that can't be read."""

    folder: Location
    segments: list[segments.SegmentFile]
    bad: dict[Location, JobError]


def up_to_date(ask: JobRequest) -> bool:
    """Whether the published version has every segment. With --quarantine-segments, one that was
    skipped counts until its files change."""
    published = Dataset(ask.out / "silver", SCHEMA).current()
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

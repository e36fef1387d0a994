"""Decides from manifests alone whether ingest has anything to do."""

from spark import verification
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.tables import Dataset
from spark.taken import TakenSegments

SCHEMA = "silver-3"


def up_to_date(request: JobRequest) -> bool:
    """Return whether the published version has every segment, except segments that are still
    skipped."""
    published = Dataset(request.out / "silver", SCHEMA).current()
    if published is None:
        return False
    export = verification.read_export(request, published.checkpoint)
    taken = TakenSegments(published.checkpoint)
    lacking = [segment.manifest for segment in export.segments if segment not in taken]
    skipped = verification.list_skipped(request, export.bad)
    complete = set(lacking) <= set(export.bad) and taken.has_compared(export.segments)
    return complete and skipped == published.checkpoint.get("skipped", {})


def warnings(lake: Location) -> list[CheckResult]:
    return verification.warnings(Dataset(lake / "silver", SCHEMA))

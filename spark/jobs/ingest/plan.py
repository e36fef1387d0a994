"""Whether ingest has anything to do, decided from manifests alone."""

from spark import verification
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.tables import Dataset
from spark.taken import TakenSegments

SCHEMA = "silver-3"


def up_to_date(ask: JobRequest) -> bool:
    """Whether the published version has every segment, but those that are still skipped."""
    published = Dataset(ask.out / "silver", SCHEMA).current()
    if published is None:
        return False
    export = verification.read_export(ask, published.memory)
    taken = TakenSegments(published.memory)
    lacking = [segment.manifest for segment in export.segments if segment not in taken]
    skipped = verification.list_skipped(ask, export.bad)
    complete = set(lacking) <= set(export.bad) and taken.has_compared(export.segments)
    return complete and skipped == published.memory.get("skipped", {})


def warnings(lake: Location) -> list[CheckResult]:
    return verification.warnings(Dataset(lake / "silver", SCHEMA))

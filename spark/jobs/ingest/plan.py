"""Whether ingest has anything to do, decided from manifests alone."""

from spark import verification
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.tables import Dataset

SCHEMA = "silver-3"


def up_to_date(ask: JobRequest) -> bool:
    """Whether the published version has every segment, but those that are still skipped."""
    published = Dataset(ask.out / "silver", SCHEMA).current()
    if published is None:
        return False
    export = verification.read_export(ask, published.memory)
    done = {*published.memory["segments"]}
    lacking = [segment.manifest for segment in export.segments if segment.name not in done]
    skipped = verification.list_skipped(ask, export.bad)
    return set(lacking) <= set(export.bad) and skipped == published.memory.get("skipped", {})


def warnings(lake: Location) -> list[CheckResult]:
    return verification.warnings(Dataset(lake / "silver", SCHEMA))

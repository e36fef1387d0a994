"""Decides from manifests alone whether the digest has anything to do."""

from spark.jobs.ingest.plan import SCHEMA as SILVER
from spark.request import JobRequest
from spark.tables import Dataset

SCHEMA = "digest-1"


def up_to_date(request: JobRequest) -> bool:
    """Return whether the published digest was made from the current silver version."""
    silver = Dataset(request.source / "silver", SILVER).current()
    digest = Dataset(request.out / "gold" / "digest", SCHEMA).current()
    if silver is None or digest is None:
        return False
    return bool(digest.checkpoint.get("silver") == silver.number)

"""Decides from manifests alone whether the digest has anything to do."""

from spark.jobs.ingest.plan import SCHEMA as SILVER
from spark.request import JobRequest
from spark.tables import Dataset

SCHEMA = "digest-1"


def up_to_date(ask: JobRequest) -> bool:
    """Return whether the published digest was made from the current silver version."""
    silver = Dataset(ask.source / "silver", SILVER).current()
    digest = Dataset(ask.out / "gold" / "digest", SCHEMA).current()
    if silver is None or digest is None:
        return False
    return bool(digest.memory.get("silver") == silver.number)

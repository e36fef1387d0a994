"""Whether the digest has anything to do, decided from manifests alone."""

from spark.jobs.ingest.plan import SCHEMA as SILVER
from spark.request import JobRequest
from spark.tables import Dataset

SCHEMA = "digest-1"


def up_to_date(ask: JobRequest) -> bool:
    """Whether the published digest was made of the current version of silver."""
    silver = Dataset(ask.source / "silver", SILVER).current()
    digest = Dataset(ask.out / "gold" / "digest", SCHEMA).current()
    if silver is None or digest is None:
        return False
    return bool(digest.memory.get("silver") == silver.number)

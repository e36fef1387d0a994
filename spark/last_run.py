"""Records a run: a file beside the tables, and a report to an appliance. Needs no Spark."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from spark.appliance_client import ApplianceClient
from spark.errors import SourceUnreachable, StorageUnreachable
from spark.files import write_whole
from spark.locations import Location

OK, FAILED, NOTHING_NEW = "ok", "failed", "nothing_new"
PATH = "/api/v1/jobs/runs"
COUNTS_MAX = 50  # as the appliance accepts
ERROR_CHARACTERS_MAX = 500


@dataclass
class RunRecord:
    """A run, and how it ended. The appliance describes the fields: POST /api/v1/jobs/runs."""

    job: str
    started_at: datetime
    version: str | None = None
    finished_at: datetime | None = None
    seconds: float = 0.0
    outcome: str = NOTHING_NEW
    exit_code: int = 0
    counts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def as_json(self) -> str:
        return json.dumps(
            asdict(self)
            | {
                "started_at": iso(self.started_at),
                "finished_at": iso(self.finished_at or self.started_at),
                "seconds": round(self.seconds, 3),
                "counts": numbers(self.counts),
                "error": self.error and self.error[:ERROR_CHARACTERS_MAX],
            }
        )


def numbers(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return a report's counts that are numbers, at most COUNTS_MAX."""
    whole = {name: value for name, value in counts.items() if type(value) is int and value >= 0}
    return dict(list(whole.items())[:COUNTS_MAX])


def write(out: Location, record: RunRecord) -> str | None:
    """Write <out>/runs/<job>.json as a whole, if `out` exists. Return why that failed."""
    path = out / "runs" / f"{record.job}.json"
    try:
        if out.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, record.as_json() + "\n")
    except (OSError, StorageUnreachable) as error:
        return f"{path} cannot be written: {getattr(error, 'strerror', error)}"
    return None


def send(url: str, token: str | None, record: RunRecord) -> str | None:
    """Report the run to an appliance. Return why the report was not accepted."""
    try:
        with ApplianceClient(url, token).request(PATH, record.as_json().encode()):
            return None
    except SourceUnreachable as error:
        return error.message


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

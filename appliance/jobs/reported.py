"""Keeps the latest run that each job reported."""

from datetime import datetime

import msgspec

from appliance.jobs import metrics, queries, wire, writes
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid
from appliance.kernel.store import Store

SHOWN = (metrics.finished, metrics.succeeded, metrics.seconds, metrics.rows, metrics.failed)
JOBS_MAX = 50  # jobs whose latest run is kept: each has separate metrics


class ReportedRuns:
    """The latest run that each job reported."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self) -> None:
        for run in self.list_all().runs:
            _show(run)

    def list_all(self) -> wire.LatestRuns:
        runs = self._store.read(queries.reported_runs)
        return wire.LatestRuns([runs[job] for job in sorted(runs)])

    def record(self, run: wire.JobRun) -> wire.LatestRun:
        """Keep the run as the latest of its job. Raises Invalid and TooManyJobs."""
        fields = msgspec.structs.asdict(run)
        for name in ("started_at", "finished_at"):
            fields[name] = _instant(name, fields[name])
        succeeded_at = None if run.outcome == "failed" else fields["finished_at"]
        latest = wire.LatestRun(**fields, succeeded_at=succeeded_at)
        kept: wire.LatestRun = self._store.write(writes.report, latest, JOBS_MAX)
        _show(kept)
        return kept

    def forget(self, job: str) -> bool:
        """Delete the latest run that a job reported; return whether there was one."""
        for gauge in SHOWN:
            gauge.remove(job)
        return bool(self._store.write(writes.forget_report, job))


def _show(run: wire.LatestRun) -> None:
    metrics.finished.labels(run.job).set(_unix(run.finished_at))
    metrics.succeeded.labels(run.job).set(_unix(run.succeeded_at))
    metrics.seconds.labels(run.job).set(run.seconds)
    metrics.rows.labels(run.job).set(run.counts.get("rows", 0))
    metrics.failed.labels(run.job).set(run.outcome == "failed")


def _unix(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _instant(name: str, text: str) -> str:
    try:
        return utc(text)
    except ValueError:
        raise Invalid(
            f"{name} is not a time", hint="use ISO 8601, such as 2026-11-21T08:00:00Z"
        ) from None

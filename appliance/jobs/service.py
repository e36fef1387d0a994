"""JobRuns: keeps the latest run of each job in a file, which survives a restart."""

from datetime import datetime
from pathlib import Path

import msgspec

from appliance.jobs import metrics, wire
from appliance.kernel.clock import utc
from appliance.kernel.errors import Invalid
from appliance.kernel.lock import GreenletLock
from appliance.kernel.log import Log
from appliance.kernel.threads import in_thread
from appliance.workspace.datadir import DataDir

FILE = "job-runs.json"
JOBS_MAX = 50  # jobs whose latest run is kept: each has metrics of its own
FILE_BYTES_MAX = 16 * 1024 * 1024


class JobRuns:
    """A malformed file is logged and replaced by the next report: it holds nothing that the next
    run of each job does not bring again."""

    def __init__(self, datadir: DataDir, log: Log) -> None:
        self._datadir = datadir
        self._path = datadir.dir / FILE
        self._log = log
        self._lock = GreenletLock()
        self._runs = {run.job: run for run in self._read()}
        for run in self._runs.values():
            _show(run)

    def list_all(self) -> wire.LatestRuns:
        return wire.LatestRuns([self._runs[job] for job in sorted(self._runs)])

    def record(self, run: wire.JobRun) -> wire.LatestRun:
        """Keep the run as the latest of its job; the file is complete before this returns."""
        with self._lock:
            former = self._runs.get(run.job)
            if former is None and len(self._runs) >= JOBS_MAX:
                raise wire.TooManyJobs
            latest = _latest(run, former)
            runs = {**self._runs, run.job: latest}
            text = msgspec.json.encode(wire.LatestRuns(list(runs.values()))).decode()
            in_thread(self._datadir.write_private, self._path, text)
            self._runs = runs
        _show(latest)
        return latest

    def _read(self) -> list[wire.LatestRun]:
        try:
            text = _read(self._path)
            return [] if text is None else msgspec.json.decode(text, type=wire.LatestRuns).runs
        except (OSError, msgspec.DecodeError) as error:
            self._log.warning("the runs of jobs cannot be read", error=type(error).__name__)
            return []


def _show(run: wire.LatestRun) -> None:
    metrics.finished.labels(run.job).set(_unix(run.finished_at))
    metrics.succeeded.labels(run.job).set(_unix(run.succeeded_at))
    metrics.seconds.labels(run.job).set(run.seconds)
    metrics.rows.labels(run.job).set(run.counts.get("rows", 0))
    metrics.failed.labels(run.job).set(run.outcome == "failed")


def _unix(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return None


def _latest(run: wire.JobRun, former: wire.LatestRun | None) -> wire.LatestRun:
    fields = msgspec.structs.asdict(run)
    for name in ("started_at", "finished_at"):
        fields[name] = _instant(name, fields[name])
    succeeded_at = former.succeeded_at if former else None
    if run.outcome != "failed":
        succeeded_at = fields["finished_at"]
    return wire.LatestRun(**fields, succeeded_at=succeeded_at)


def _instant(name: str, text: str) -> str:
    try:
        return utc(text)
    except ValueError:
        raise Invalid(
            f"{name} is not a time", hint="use ISO 8601, such as 2026-11-21T08:00:00Z"
        ) from None

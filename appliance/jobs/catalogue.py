"""Keeps the current jobs: jobs in files, which are read again when the folder changes, and jobs
that were made over the API. A file hides an API job with its name."""

from pathlib import Path

from appliance.jobs import wire
from appliance.jobs.spec_files import FOLDER, SpecFile, read_folder
from appliance.kernel.lock import GreenletLock
from appliance.kernel.log import Log
from appliance.kernel.threads import in_thread


class JobCatalogue:
    """The current jobs. A wrong file leaves its job unchanged, and is logged."""

    def __init__(self, workspace: Path, log: Log) -> None:
        self._workspace = workspace
        self._log = log
        self._lock = GreenletLock()
        self.version = 0  # grows with each change
        self._signature: object = ""
        self._specs: dict[str, wire.JobSpec] = {}
        self._given: dict[str, wire.JobSpec] = {}
        self.files: list[SpecFile] = []

    def put(self, name: str, spec: wire.JobSpec | None) -> None:
        """Put a job that was made over the API, or remove it (None)."""
        self._given.pop(name, None)
        if spec is not None:
            self._given[name] = spec
        self.version += 1

    def find(self, name: str) -> wire.JobSpec:
        """Return a job. Raises NoSuchJob."""
        if name not in self.specs:
            raise wire.NoSuchJob(details={"job": name})
        return self.specs[name]

    @property
    def specs(self) -> dict[str, wire.JobSpec]:
        return self._given | self._specs

    def refresh(self) -> None:
        """Read the files if one has changed."""
        with self._lock:
            signature = in_thread(_signature, self._workspace)
            if signature != self._signature:
                self._take(in_thread(read_folder, self._workspace))
                self._signature = signature
                self.version += 1

    def _take(self, files: list[SpecFile]) -> None:
        former, self._specs, self.files = self._specs, {}, files
        for file in files:
            spec = file.spec
            if file.error is not None:
                self._log.warning("a job can't be read", job=file.name, reason=file.error.message)
                spec = former.get(file.name)
            if spec is not None:
                self._specs[file.name] = spec


def _signature(workspace: Path) -> object:
    """Return a value that changes with every file in the folder."""
    try:
        stats = [(path.name, path.stat()) for path in Path(workspace, FOLDER).glob("*.toml")]
    except OSError:
        return None
    return sorted((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats)

"""Runs of jobs as a part of the appliance."""

from appliance.jobs.resources import routes
from appliance.jobs.service import JobRuns
from appliance.jobs.settings import JobsSettings
from appliance.jobs.wire import SCOPES
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem
from appliance.workspace.datadir import DataDir


class JobsSubsystem(Subsystem):
    name = "jobs"
    paths = ("/api/v1/jobs",)
    scopes = SCOPES

    def __init__(self, settings: JobsSettings, datadir: DataDir, log: Log) -> None:
        self._runs = JobRuns(settings, datadir, log)

    def routes(self) -> list[Route]:
        return routes(self._runs)

"""Runs of jobs as a part of the appliance."""

from appliance.host import Host
from appliance.jobs.resources import routes
from appliance.jobs.service import JobRuns
from appliance.jobs.wire import SCOPES
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem


class JobsSubsystem(Subsystem):
    name = "jobs"
    role = Role("runs that batch jobs report, as metrics and for `agentlip jobs`")
    paths = ("/api/v1/jobs",)
    scopes = SCOPES

    def __init__(self, host: Host) -> None:
        self._runs = JobRuns(host.datadir, host.log)

    def routes(self) -> list[Route]:
        return routes(self._runs)

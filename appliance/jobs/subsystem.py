"""Jobs and their runs as a subsystem."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from appliance.child.fork_template import ForkTemplate
from appliance.host import Host
from appliance.jobs.attempts import Attempts, AttemptSite
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.container import find, start
from appliance.jobs.listing import list_all
from appliance.jobs.loops import (
    AttemptLoop,
    JobAsker,
    JobAsks,
    JobEvents,
    OutcomePoster,
    PostOutcome,
    TriggerLoop,
)
from appliance.jobs.process import LAUNCHER
from appliance.jobs.reported import ReportedRuns
from appliance.jobs.resources import routes
from appliance.jobs.service import Jobs
from appliance.jobs.settings import JobsSettings
from appliance.jobs.signals import JobSignals
from appliance.jobs.tools import tools
from appliance.jobs.wire import SCOPES
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import HOUR_MS
from appliance.kernel.loop import Loop, Pruner
from appliance.kernel.route import Route
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool

STORE = "jobs"


class JobsNeeds(msgspec.Struct, frozen=True):
    """The jobs' needs from other subsystems.

    url    returns this appliance's URL
    asks   None without the role `ask`
    post   None without the role `hub`
    loops  the other subsystems' loops, which are listed beside the jobs
    """

    book: TokenBook
    url: Callable[[], str]
    asks: JobAsks | None
    post: PostOutcome | None
    events: Sequence[JobEvents]
    loops: Sequence[Loop] = ()


class JobsSubsystem(Subsystem):
    name = "jobs"
    sections = {"jobs": JobsSettings}
    role = Role("jobs with a schedule, and the runs that batch jobs report")
    needed_stores = frozenset({STORE})
    scopes = SCOPES

    def __init__(self, host: Host, needs: JobsNeeds) -> None:
        clock, log, workspace = host.clock, host.log, host.datadir.workspace
        self._needs, self._clock = needs, clock
        settings = host.section(JobsSettings)
        store = host.open_store(STORE)
        steady, kept = SteadyClock(store, clock, log), host.datadir.dir / "jobs"
        self.jobs = Jobs(store, JobCatalogue(workspace, log), steady, JobSignals(), clock, kept)
        self._reported = ReportedRuns(store)
        self._template = ForkTemplate(LAUNCHER)
        self._attempts = Attempts(self.jobs, needs.book, log, AttemptSite(
            workspace=workspace, kept=kept, instance_id=host.instance_id, url=needs.url,
            start=partial(start, settings, self._template),
            find=partial(find, settings.container_socket), ended=host.note_work,
            attempts_max=settings.attempts_max,
        ))  # fmt: skip
        self.stores = (store,)
        if STORE not in host.damaged:
            self.jobs.open()
            self._reported.open()
        self.loops: tuple[Loop, ...] = (
            AttemptLoop(self.jobs, self._attempts, clock, log),
            TriggerLoop(self.jobs, needs.events, clock, log),
            Pruner("jobs_pruner", HOUR_MS / 1000, self.jobs.prune, clock, log),
        )

        if needs.asks is not None:
            self.loops += (JobAsker(self.jobs, needs.asks, clock, log),)

        if needs.post is not None:
            self.loops += (OutcomePoster(self.jobs, needs.post, clock, log),)

    def routes(self) -> list[Route]:
        loops = (*self._needs.loops, *self.loops)
        listing = partial(list_all, self.jobs, self._reported, loops)
        return routes(self._reported, self.jobs, listing, self._needs.book)

    def tools(self) -> Sequence[Tool]:
        return tools(self.jobs)

    def drain(self) -> None:
        self._attempts.drain()

    def close(self, timeout_seconds: float) -> bool:
        self._attempts.close(timeout_seconds / 2)
        self._template.close()
        return super().close(timeout_seconds / 2)

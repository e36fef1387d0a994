"""A process that only runs the jobs of a workspace, in containers too if the socket of an engine is
its second argument. It is ready sooner than the appliance, so a test can kill many. It prints a
line when it is ready."""

import sys
from functools import partial
from pathlib import Path

import gevent

from appliance.child.fork_template import ForkTemplate
from appliance.jobs import container
from appliance.jobs.attempts import Attempts, AttemptSite
from appliance.jobs.catalogue import JobCatalogue
from appliance.jobs.loops import AttemptLoop
from appliance.jobs.process import LAUNCHER
from appliance.jobs.service import Jobs
from appliance.jobs.settings import JobsSettings
from appliance.jobs.signals import JobSignals
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import prefixed_token
from appliance.kernel.log import Log
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace.datadir import DataDir


def main(workspace: Path, socket: str | None = None) -> None:
    clock, log, datadir = SystemClock(), Log(sys.stderr.buffer), DataDir(workspace)
    store = Store("jobs", datadir.database("jobs"), StoreSettings(), clock, log)
    steady, kept = SteadyClock(store, clock, log), datadir.dir / "jobs"
    jobs = Jobs(store, JobCatalogue(workspace, log), steady, JobSignals(), clock, kept)
    attempts = Attempts(jobs, TokenBook(), log, AttemptSite(
        workspace=workspace, kept=kept, instance_id=prefixed_token(), url=lambda: "",
        find=partial(container.find, socket),
        start=partial(container.start, JobsSettings(socket), ForkTemplate(LAUNCHER)),
    ))  # fmt: skip
    jobs.open()
    AttemptLoop(jobs, attempts, clock, log).start()
    print("ready", flush=True)
    gevent.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

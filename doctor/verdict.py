"""The doctor's report for clients, made by a child process.

Checks open stores and read files, which would block the event loop, so a child runs `python -m
doctor --json`, and the verdict is the one that a terminal shows.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.child.command import Commands
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid, Unavailable
from appliance.kernel.lock import GreenletLock
from appliance.kernel.pool import GreenletPool
from appliance.workspace.datadir import DataDir
from doctor import report
from doctor.declared_checks import EXPENSIVE
from doctor.run import EXIT_ERRORS, narrow, select_names

SECONDS_MAX = 30.0  # all cheap checks together
KILL_AFTER_SECONDS = 1.0
REPORT_BYTES_MAX = 4 * 1024 * 1024  # 20 findings per check are far below this

Names = Annotated[
    str, Meta(max_length=500, pattern=r"^[a-z., -]*$", description="separated by commas")
]
CACHE_SECONDS = 10.0  # GET /api/v1/doctor and the MCP tool repeat a result


class VerdictQuery(msgspec.Struct, frozen=True):
    """A selection of checks. Without names all cheap checks run. `run`: names of checks or
    groups; `group`: groups."""

    run: Names = ""
    group: Names = ""


class DoctorVerdict(report.DoctorReport, frozen=True, kw_only=True):
    """The report from `agentlip doctor --json`, and the seconds since its checks ended."""

    age_seconds: float


class ExpensiveCheck(Invalid):
    code = "EXPENSIVE_CHECK"
    default_message = "the check reads whole databases, so it runs only on the command line"
    default_hint = "agentlip doctor --all"


class VerdictUnavailable(Unavailable):
    code = "VERDICT_UNAVAILABLE"
    default_message = "the checks could not run"
    default_hint = "agentlip doctor, on the appliance's machine"


class _Kept(msgspec.Struct, frozen=True):
    """One run's result: a report, or why there is none. `ended`: its monotonic time."""

    ended: float
    result: report.DoctorReport | str


class Verdicts:
    """A cache for the cheap checks: one run at a time, kept for some seconds.

    Every request is answered from a run with all cheap checks, so different queries share the run.
    """

    def __init__(self, datadir: DataDir, clock: Clock, commands: Commands) -> None:
        self._datadir = datadir
        self._commands = commands
        self._clock = clock
        self._lock = GreenletLock()
        self._pool = GreenletPool(1)
        self._kept: _Kept | None = None
        self._ending = False

    def verdict(self, query: VerdictQuery, age_max: float | None = None) -> DoctorVerdict:
        """Return the verdict. Raise UnknownCheck, ExpensiveCheck, or VerdictUnavailable if the
        checks can't run."""
        wanted = _wanted(query)
        kept = self._latest(CACHE_SECONDS if age_max is None else age_max)
        if isinstance(kept.result, str):
            raise VerdictUnavailable(kept.result)
        whole = kept.result
        narrowed = report.report(whole.facts, narrow(whole.checks, wanted))
        age = max(0.0, self._clock.monotonic() - kept.ended)
        return DoctorVerdict(**msgspec.structs.asdict(narrowed), age_seconds=round(age, 3))

    def of_names(self, names: str) -> DoctorVerdict:
        """Return the verdict for the named checks or groups; "" means all cheap checks."""
        return self.verdict(VerdictQuery(run=names))

    def end(self) -> None:
        """Stop the child and all waiting requests, because the server is stopping."""
        self._ending = True
        self._pool.kill(block=False)

    def _latest(self, age_max: float) -> _Kept:
        """Return the kept result while young, or one from a run that ends after now."""
        asked = self._clock.monotonic()
        with self._lock:  # a run ends after SECONDS_MAX
            kept = self._kept
            if kept is not None:
                age = self._clock.monotonic() - kept.ended
                if kept.ended >= asked or age < age_max:
                    return kept
            if self._ending:
                raise VerdictUnavailable("the appliance is stopping")
            self._pool.spawn(self._run)  # not in this greenlet, so that end() can kill it
            self._pool.join()
            if self._kept is None or self._kept is kept:
                raise VerdictUnavailable("the appliance is stopping")
            return self._kept

    def _run(self) -> None:
        result = self._check()
        self._kept = _Kept(self._clock.monotonic(), result)

    def _check(self) -> report.DoctorReport | str:
        workspace = str(self._datadir.workspace.absolute())
        done = self._commands.run(
            [sys.executable, "-m", __package__, "--json", "--workspace", workspace],
            b"",
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            folder=Path(workspace),
            seconds_max=SECONDS_MAX,
            kill_after_seconds=KILL_AFTER_SECONDS,
            output_bytes_max=REPORT_BYTES_MAX,
        )
        if done.timed_out:
            return f"the checks were stopped after {SECONDS_MAX:g} s"
        if done.code is None or not 0 <= done.code <= EXIT_ERRORS:
            return f"the checks could not run (exit code {done.code})"
        try:
            return msgspec.json.decode(done.output, type=report.DoctorReport)
        except msgspec.DecodeError as error:
            return f"the report can't be read: {error}"


def _wanted(query: VerdictQuery) -> frozenset[str]:
    """Return the cheap checks that the query selects, by name."""
    names, groups = _split(query.run), _split(query.group)
    checks = select_names(names, False, groups)
    named = set(EXPENSIVE).intersection(names)
    if named:
        raise ExpensiveCheck(
            details={"names": sorted(named)},
            hint=f"agentlip doctor --run {','.join(sorted(named))}",
        )
    return frozenset(checks).difference(EXPENSIVE)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]

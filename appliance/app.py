"""The appliance: starts, drains and closes all subsystems alike.

`composition.py` builds the subsystems. This derives from their tuple what the process needs of
them (stores, loops, scopes, facts) and names no subsystem.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from appliance.checks.context import Context
from appliance.composition import Composition
from appliance.host import Host
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.scopes import join
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writerprocess import WriterProcess
from appliance.monitoring.loops import Checkup, DoctorRuns
from appliance.monitoring.metrics import disk_facts, watch_facts
from appliance.mounting import Mounting
from appliance.readiness import readiness_of
from appliance.settings import Settings
from appliance.web.guard import FREE_ON_LOOPBACK, Guard
from appliance.web.health import Readiness
from appliance.web.limits import RateLimiter
from appliance.web.unsent import UNSENT_BYTES_MAX, UnsentBudget
from appliance.workspace.datadir import DataDir, WriterLock
from doctor import live
from doctor.current_settings import CurrentSettings

SOCKETS_CLOSE_SECONDS = 3.0
CLOSE_SECONDS = 3.0


class LoopDelay(Loop):
    """Measures how late the event loop runs a loop whose wait has ended."""

    name = "loop_delay"
    interval_seconds = 1.0
    runs_read_only = True

    def __init__(self, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._recent: list[float] = [0.0] * 10

    @property
    def worst_seconds(self) -> float:
        return max(self._recent)

    def run_once(self, now_ms: int) -> dict[str, int]:
        delay = max(0.0, self.clock.monotonic() - self.due)
        self._recent = [*self._recent[1:], delay]
        return {"delayed": int(delay > 0.1)}


class Appliance:
    """All subsystems of one process. The writer lock must be held."""

    def __init__(
        self,
        settings: Settings,
        datadir: DataDir,
        lock: WriterLock,
        clock: Clock,
        log: Log,
        instance_id: str,
        *,
        read_settings: Callable[[], Settings] | None = None,
        settings_file: Path | None = None,
        served: DataDir | None = None,
        damaged: Mapping[str, StoreSuspended] = MappingProxyType({}),
    ) -> None:
        """`read_settings` reads the settings again from their sources; `settings_file` is one of
        them, if it is not the one of the workspace. `damaged` stores are suspended; `served` has
        empty files in their place."""
        self.settings = settings
        self.datadir = datadir
        file = settings_file or datadir.settings_file
        self._doctor_settings = CurrentSettings(settings.doctor, file)
        self.lock = lock
        self.clock = clock
        self.log = log
        self.damaged = damaged
        self._read_only = settings.store.read_only
        self.off = settings.roles.off
        self.stopping = False
        self.writers: WriterProcess | None = None
        if not self._read_only:
            self.writers = WriterProcess(clock, log, lock.descriptor)
        host = Host(
            settings, read_settings or (lambda: settings), self.off, datadir, served or datadir,
            clock, log, instance_id, damaged, self.writers, file,
        )  # fmt: skip
        composition = Composition(host)
        self.identity = composition.identity
        self.db_id = composition.db_id
        self._doctor, self._doctor_due = composition.doctor, host.doctor_due
        scopes = join(subsystem.scopes for subsystem in composition.subsystems)
        free = FREE_ON_LOOPBACK | scopes.free
        book, gate = composition.tokens.book, composition.maintenance.gate
        self.guard = Guard(book, settings.http, clock, free, scopes.implied, gate)
        self.subsystems: tuple[Subsystem, ...] = (
            *composition.subsystems,
            *composition.mcp(host, self.guard, self._readiness),
        )
        if self.off:
            log.info("subsystems are switched off", **self.off)
        self._stores = [store for subsystem in self.subsystems for store in subsystem.stores]
        for store in self._stores:
            if store.name in damaged:
                store.suspend(damaged[store.name])
        self._mounting = Mounting(self.subsystems, damaged, self.guard, free, self._readiness)
        self.loop_delay = LoopDelay(clock, log)
        self.loops = self._loops()
        self.limiter = RateLimiter(settings.limits, clock)
        self.unsent = UnsentBudget(UNSENT_BYTES_MAX, clock)
        self.entry = self._mounting.application(
            settings, self.limiter, self.unsent, clock, log, self.identity.instance_id,
            composition.audit.trail,
        )  # fmt: skip
        watch_facts(self.facts)

    def start(self) -> None:
        for loop in self.loops:
            loop.start()
        for subsystem in self.subsystems:
            subsystem.start()

    def end_streams(self) -> None:
        """Become not ready, end all long waits, and close the sockets."""
        self.stopping = True
        for subsystem in self.subsystems:
            subsystem.drain()
        self.entry.close_sockets(SOCKETS_CLOSE_SECONDS)

    def stop(self) -> None:
        """Stop streams, loops and subsystems, each within a time limit."""
        self.end_streams()
        for loop in reversed(self.loops):
            loop.stop()
        for subsystem in reversed(self.subsystems):
            if not subsystem.close(CLOSE_SECONDS):
                self.log.error("a subsystem did not stop in time", subsystem=subsystem.name)
        if self.writers is not None and not self.writers.close(CLOSE_SECONDS):
            self.log.error("the writer process did not stop in time", pid=self.writers.pid)

    def _loops(self) -> list[Loop]:
        """All loops, except those of subsystems whose store is damaged, and while the stores are
        read-only those that write."""
        doctor = self._doctor
        loops: list[Loop] = [
            self.loop_delay,
            *(store.checkpointer for store in self._stores),
            *(
                loop
                for subsystem in self.subsystems
                if self._mounting.damage_of(subsystem) is None
                for loop in subsystem.loops
            ),
            Checkup(self.checkup, doctor.latest, self.clock, self.log),
            DoctorRuns(
                doctor.verdicts.verdict, doctor.latest, self.clock, self.log, self._doctor_due
            ),
        ]
        return [loop for loop in loops if loop.runs_read_only or not self._read_only]

    def routes(self) -> list[Route]:
        return self._mounting.routes()

    def checkup(self) -> Context:
        """The context of the doctor's checks, with the facts of this process."""
        return Context(
            self.datadir,
            self._doctor_settings.get(),
            self.clock,
            live=self.facts(),
            off=frozenset(self.off),
        )

    def facts(self) -> dict[str, float]:
        """What the checks and the metrics read of this process."""
        facts = live.facts(
            {store.name: store.facts() for store in self._stores},
            loop_delay_seconds=self.loop_delay.worst_seconds,
            lock_intact=self.lock.intact(),
            stopping=self.stopping,
        )
        for subsystem in self.subsystems:
            facts |= subsystem.facts()
        facts["socket_open_max"] = self.entry.sockets_max
        return facts | disk_facts(self.datadir.dir) | live.facts_of_off(self.off)

    def _readiness(self) -> Readiness:
        return readiness_of(self.checkup(), self.identity.instance_id)

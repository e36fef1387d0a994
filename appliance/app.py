"""Runs the appliance: starts, serves, drains and closes all subsystems alike.

`composition.py` builds the subsystems. The process's stores, loops, routes, sockets, scopes and
facts are derived from their tuple.
"""

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from appliance.audit.log.trail import AuditTrail
from appliance.audit.middleware import AuditMiddleware
from appliance.builders import build_mcp
from appliance.checks.context import Context
from appliance.composition import compose
from appliance.host import Host
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import join
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writerprocess import WriterProcess
from appliance.monitoring.loops import Checkup, DoctorRuns
from appliance.monitoring.metrics import disk_facts, watch_facts
from appliance.readiness import readiness_of
from appliance.roles import role_off
from appliance.settings import Settings
from appliance.web import health, landing, openapi
from appliance.web.app import make_app
from appliance.web.errors import UpgradeRequired
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.suspended import refuse_with, suspended_routes
from appliance.web.unsent import UNSENT_BYTES_MAX, UnsentBudget
from appliance.workspace.datadir import DataDir, WriterLock
from appliance.wsgi import WsgiApplication
from doctor import live
from doctor.current_settings import CurrentSettings
from doctor.run import ready_checks

SOCKETS_CLOSE_SECONDS = 3.0
CLOSE_SECONDS = 3.0


class LoopDelay(Loop):
    """Measures how late the event loop runs a loop whose wait has ended."""

    name = "loop_delay"
    interval_seconds = 1.0
    runs_read_only = True

    def __init__(self, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self.recent_seconds = deque([0.0], maxlen=10)

    def run_once(self, now_ms: int) -> dict[str, int]:
        delay = max(0.0, self.clock.monotonic() - self.due)
        self.recent_seconds.append(delay)
        return {"delayed": int(delay > 0.1)}


class Appliance:
    """The subsystems in one process. The caller holds the writer lock."""

    def __init__(
        self,
        settings: Settings,
        lock: WriterLock,
        log: Log,
        *,
        read_settings: Callable[[], Settings] | None = None,
        settings_file: Path | None = None,
        served: DataDir | None = None,
        damaged: Mapping[str, StoreSuspended] = MappingProxyType({}),
    ) -> None:
        """Build the subsystems.

        read_settings  reads the settings again from their sources
        settings_file  a source, if it is not the workspace's own file
        damaged        stores to suspend; `served` has empty files in their place"""
        self.settings = settings
        self.lock = lock
        self._stopping = False
        datadir, clock = lock.datadir, lock.clock
        file = settings_file or datadir.settings_file
        self._doctor_settings = CurrentSettings(settings.doctor, file)
        writers = None
        if not settings.store.read_only:
            writers = WriterProcess(clock, log, lock.descriptor)
        self.host = host = Host(
            settings, read_settings or (lambda: settings), settings.roles.off, datadir,
            served or datadir, clock, log, lock.instance_id, damaged, writers, file,
        )  # fmt: skip
        built = compose(host)
        self.identity = built.process
        self.db_id = built.db_id
        self._verdicts, self._latest = built.doctor.verdicts, built.latest
        scopes = join(subsystem.scopes for subsystem in built.subsystems)
        book, gate = built.tokens.book, built.maintenance.gate
        pauses = None if built.hub is None else built.hub.hub.pauses
        self._guard = Guard(
            book, settings.http, clock, scopes.free, scopes.implied, gate,
            verifier=built.oidc.verifier, pauses=pauses,
        )  # fmt: skip
        mcp = build_mcp(built, self._guard, self._readiness)
        self.subsystems = (*built.subsystems, *([] if mcp is None else [mcp]))
        if host.off:
            log.info("subsystems are switched off", **host.off)
        self._stores = [store for subsystem in self.subsystems for store in subsystem.stores]
        for store in self._stores:
            if store.name in damaged:
                store.suspend(damaged[store.name])
        self._loop_delay = LoopDelay(clock, log)
        self.loops = self._loops()
        self.unsent = UnsentBudget(UNSENT_BYTES_MAX, clock)
        self.entry = self._application(built.audit.trail)
        watch_facts(self._facts)

    def start(self) -> None:
        for loop in self.loops:
            loop.start()
        for subsystem in self.subsystems:
            subsystem.start()

    def end_streams(self) -> None:
        """Become not ready, end all long waits, and close the sockets."""
        self._stopping = True
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
                self.host.log.error("a subsystem did not stop in time", subsystem=subsystem.name)
        writers = self.host.writers
        if writers is not None and not writers.close(CLOSE_SECONDS):
            self.host.log.error("the writer process did not stop in time", pid=writers.pid)

    def _loops(self) -> list[Loop]:
        """Return the loops to run: without the loops on a damaged store, and without loops that
        write while the stores are read-only."""
        host, latest = self.host, self._latest
        loops: list[Loop] = [
            self._loop_delay,
            *(store.checkpointer for store in self._stores),
            *(
                loop
                for subsystem in self.subsystems
                if self._damage_of(subsystem) is None
                for loop in subsystem.loops
            ),
            Checkup(self._checkup, ready_checks(host.off), latest, host.clock, host.log),
            DoctorRuns(self._verdicts.verdict, latest, host.clock, host.log, host.doctor_due),
        ]
        return [loop for loop in loops if loop.runs_read_only or host.writers is not None]

    def _damage_of(self, subsystem: Subsystem) -> StoreSuspended | None:
        """Return why the subsystem's loops and routes are suspended; None: the subsystem is
        served."""
        damaged = self.host.damaged
        return next((damaged[name] for name in subsystem.needed_stores if name in damaged), None)

    def routes(self) -> list[Route]:
        described: list[Route] = []
        for subsystem in self.subsystems:
            damage, routes = self._damage_of(subsystem), subsystem.routes()
            described += routes if damage is None else suspended_routes(routes, damage)
        described += health.routes(self._guard, self._readiness, self.host.clock.monotonic)
        described += openapi.routes(described, self._guard.free)
        return [*described, *landing.routes()]

    def _sockets(self) -> list[SocketRoute]:
        mounted: list[SocketRoute] = []
        for subsystem in self.subsystems:
            damage = self._damage_of(subsystem)
            changes = {} if damage is None else {"serve": refuse_with(damage), "query": None}
            mounted += [msgspec.structs.replace(route, **changes) for route in subsystem.sockets()]
        return mounted

    def _application(self, trail: AuditTrail) -> WsgiApplication:
        """Build the WSGI application with all routes and sockets."""
        settings, clock, log = self.settings, self.host.clock, self.host.log
        limiter = RateLimiter(settings.limits, clock)
        routes, sockets = self.routes(), self._sockets()
        paths = {socket.path for socket in sockets}

        def absent(path: str) -> ApplianceError | None:
            return UpgradeRequired() if path in paths else role_off(self.host.off, path)

        falcon_app = make_app(
            routes,
            self._guard,
            limiter,
            log=log,
            clock=clock,
            instance_id=self.identity.instance_id,
            access=settings.log.access,
            absent=absent,
            audit=AuditMiddleware(trail, routes, log),
        )
        return WsgiApplication(
            falcon_app, sockets, self._guard, limiter, settings.socket, clock, log,
            self.unsent, absent,
        )  # fmt: skip

    def _checkup(self) -> Context:
        """Return the context for the doctor's checks, with this process's facts."""
        return Context(
            self.host.datadir,
            self._doctor_settings.get(),
            self.host.clock,
            live=self._facts(),
            off=frozenset(self.host.off),
        )

    def _facts(self) -> dict[str, float]:
        """Return the facts that checks and metrics read from this process."""
        facts = live.facts(
            {store.name: store.facts() for store in self._stores},
            loop_delay_seconds=max(self._loop_delay.recent_seconds),
            lock_intact=self.lock.intact(),
            stopping=self._stopping,
        )
        for subsystem in self.subsystems:
            facts |= subsystem.facts()
        facts["socket_open_max"] = self.entry.sockets_max
        return facts | disk_facts(self.host.datadir.dir) | live.facts_of_off(self.host.off)

    def _readiness(self) -> health.Readiness:
        return readiness_of(self._checkup(), self.identity.instance_id)

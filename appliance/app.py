"""The appliance: its subsystems started, asked, drained and closed, all alike.

What there is comes from `composition.py`; this derives from that tuple what the process needs of
it (stores, loops, scopes, routes, sockets, facts) and names no subsystem.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from appliance.composition import Composition, Host
from appliance.hub.service import Hub
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop, LoopDelay
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import joined
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.mcp.subsystem import McpSubsystem
from appliance.mcp.tools import ToolContext
from appliance.settings import Settings
from appliance.web import health, landing, openapi
from appliance.web.app import make_app
from appliance.web.guard import FREE_ON_LOOPBACK, Guard
from appliance.web.limits import RateLimiter
from appliance.web.suspended import suspended_routes, suspended_socket
from appliance.web.unsent import UnsentBudget
from appliance.wsgi import WsgiApplication
from doctor import live
from doctor.check import Context, Severity
from doctor.loops import Checkup
from doctor.run import is_ready, readiness

SOCKETS_CLOSE_SECONDS = 3.0
CLOSE_SECONDS = 3.0


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
        served: DataDir | None = None,
        damaged: Mapping[str, StoreSuspended] = MappingProxyType({}),
    ) -> None:
        """`read_settings` reads them anew from where `settings` came from. `damaged` stores are
        suspended; `served` has empty files in their place."""
        self.settings = settings
        self.datadir = datadir
        self.lock = lock
        self.clock = clock
        self.log = log
        self.damaged = damaged
        self.off = settings.roles.off
        self.stopping = False
        host = Host(
            settings, datadir, served or datadir, damaged, lock, clock, log, instance_id,
            read_settings or (lambda: settings),
        )  # fmt: skip
        parts = Composition(host)
        self.identity = parts.identity
        self.db_id = parts.db_id
        scopes = joined(one.scopes for one in parts.subsystems)
        free = FREE_ON_LOOPBACK | scopes.free
        self.guard = Guard(parts.tokens.book, settings.http, clock, log, free, scopes.implied)
        self.subsystems: tuple[Subsystem, ...] = (*parts.subsystems, *self._mcp(parts.hub))
        if self.off:
            log.info("subsystems are switched off", **self.off)
        for store in self._stores():
            if store.name in damaged:
                store.suspend(damaged[store.name])
        self.loop_delay = LoopDelay(clock, log)
        self.loops = self._loops()
        self.limiter = RateLimiter(settings.limits, clock)
        self.unsent = UnsentBudget(settings.http.unsent_bytes_max, clock)
        self._free = free
        self.entry = self._build_entry()

    def _mcp(self, hub: Hub | None) -> list[Subsystem]:
        """Its tools need the verdict of this appliance, so the composition can't build it."""
        if hub is None or "mcp" in self.off:
            return []
        bench = ToolContext(hub, self._verdict)
        return [McpSubsystem(bench, self.guard, self.settings.http.body_bytes_max)]

    # -- life ------------------------------------------------------------------------

    def start(self) -> None:
        for loop in self.loops:
            loop.start()
        for one in self.subsystems:
            one.start()

    def end_streams(self) -> None:
        """Not ready any more; whoever waits for events is told to come again later."""
        self.stopping = True
        for one in self.subsystems:
            one.drain()
        self.entry.close_sockets(SOCKETS_CLOSE_SECONDS)

    def stop(self) -> None:
        """Streams, loops, subsystems: each with a limit. The server has stopped accepting."""
        self.end_streams()
        for loop in reversed(self.loops):
            loop.stop()
        for one in reversed(self.subsystems):
            if not one.close(CLOSE_SECONDS):
                self.log.error("a subsystem did not finish in time", subsystem=one.name)

    # -- what the tuple says -----------------------------------------------------------

    def _stores(self) -> list[Store]:
        return [store for one in self.subsystems for store in one.stores]

    def _loops(self) -> list[Loop]:
        """Loops of a subsystem whose store is damaged don't run; its checkpointer does no harm."""
        return [
            self.loop_delay,
            *(store.checkpointer for store in self._stores()),
            *(loop for one in self.subsystems if not self._damage(one) for loop in one.loops),
            Checkup(self.checkup, self.clock, self.log),
        ]

    def _damage(self, one: Subsystem) -> StoreSuspended | None:
        """Why this subsystem is not served; None: it is."""
        return next((self.damaged[name] for name in one.needs if name in self.damaged), None)

    def routes(self) -> list[Route]:
        described: list[Route] = []
        for one in self.subsystems:
            damage = self._damage(one)
            described += one.routes() if damage is None else suspended_routes(one.routes(), damage)
        described += health.routes(self.guard, self._verdict)
        described += openapi.routes(described, self._free)
        return [*described, *landing.routes(described, self.guard)]

    def _sockets(self) -> list[SocketRoute]:
        return [
            socket
            if (damage := self._damage(one)) is None
            else msgspec.structs.replace(socket, serve=suspended_socket(damage), query=None)
            for one in self.subsystems
            for socket in one.sockets()
        ]

    def _build_entry(self) -> WsgiApplication:
        settings = self.settings
        falcon_app = make_app(
            self.routes(),
            self.guard,
            self.limiter,
            settings=settings.http,
            log=self.log,
            clock=self.clock,
            instance_id=self.identity.instance_id,
            access=settings.log.access,
            unsent=self.unsent,
            absent=settings.roles.refusal,
        )
        return WsgiApplication(
            falcon_app,
            self._sockets(),
            self.guard,
            self.limiter,
            settings.socket,
            self.clock,
            self.log,
            self.unsent,
            settings.roles.refusal,
        )

    # -- health --------------------------------------------------------------------------

    def checkup(self) -> Context:
        """What the doctor's checks see of this process."""
        facts = live.facts(
            {store.name: store.facts() for store in self._stores()},
            loop_delay_seconds=self.loop_delay.worst_seconds,
            lock_intact=self.lock.intact(),
            stopping=self.stopping,
        )
        for one in self.subsystems:
            facts |= one.facts()
        facts |= live.facts_of_off(self.off)
        return Context(
            self.datadir, self.settings.doctor, self.clock, live=facts, off=frozenset(self.off)
        )

    def _verdict(self) -> health.Verdict:
        """`/-/ready` by the doctor's own table, so that the two can't disagree."""
        with self.checkup() as context:
            findings = readiness(context)
            details = {
                "instance_id": self.identity.instance_id,
                "findings": msgspec.to_builtins(findings),
                "facts": dict(context.live or {}),
            }
        failing = {found.check for found in findings if found.severity is Severity.CRITICAL}
        return health.Verdict(is_ready(findings), sorted(failing), details, sorted(self.damaged))

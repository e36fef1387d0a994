"""Mounts the routes and sockets of all subsystems in one WSGI application."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from appliance.audit.middleware import AuditMiddleware
from appliance.auditlog.trail import AuditTrail
from appliance.composition import ROLE_PATHS
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.settings import Settings
from appliance.web import health, landing, openapi
from appliance.web.app import make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.suspended import refuse_with, suspended_routes
from appliance.web.unsent import UnsentBudget
from appliance.wsgi import WsgiApplication


class Mounting:
    """Everything that is served. Subsystems with a damaged store answer with the reason."""

    def __init__(
        self,
        subsystems: Sequence[Subsystem],
        damaged: Mapping[str, StoreSuspended],
        guard: Guard,
        free: frozenset[str],
        readiness: Callable[[], health.Readiness],
    ) -> None:
        """`free`: scopes that need no token on a loopback bind."""
        self._subsystems = subsystems
        self._damaged = damaged
        self._guard = guard
        self._free = free
        self._readiness = readiness

    def damage_of(self, subsystem: Subsystem) -> StoreSuspended | None:
        """Why this subsystem is not served; None: it is."""
        return next(
            (self._damaged[name] for name in subsystem.needed_stores if name in self._damaged), None
        )

    def routes(self) -> list[Route]:
        described: list[Route] = []
        for subsystem in self._subsystems:
            damage, routes = self.damage_of(subsystem), subsystem.routes()
            described += routes if damage is None else suspended_routes(routes, damage)
        described += health.routes(self._guard, self._readiness)
        described += openapi.routes(described, self._free)
        return [*described, *landing.routes()]

    def sockets(self) -> list[SocketRoute]:
        mounted: list[SocketRoute] = []
        for subsystem in self._subsystems:
            damage, sockets = self.damage_of(subsystem), subsystem.sockets()
            if damage is not None:
                serve = refuse_with(damage)
                sockets = [
                    msgspec.structs.replace(socket, serve=serve, query=None) for socket in sockets
                ]
            mounted += sockets
        return mounted

    def application(
        self,
        settings: Settings,
        limiter: RateLimiter,
        unsent: UnsentBudget,
        clock: Clock,
        log: Log,
        instance_id: str,
        trail: AuditTrail,
    ) -> WsgiApplication:
        absent = partial(ROLE_PATHS.refusal, settings.roles)
        routes = self.routes()
        falcon_app = make_app(
            routes,
            self._guard,
            limiter,
            log=log,
            clock=clock,
            instance_id=instance_id,
            access=settings.log.access,
            absent=absent,
            audit=AuditMiddleware(trail, routes),
        )
        return WsgiApplication(
            falcon_app, self.sockets(), self._guard, limiter, settings.socket, clock, log, unsent,
            absent,
        )  # fmt: skip

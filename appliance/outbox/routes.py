"""Keeps the routes in memory: which may start a delivery now."""

from collections.abc import Collection
from typing import Any

from appliance.kernel.clock import Clock
from appliance.kernel.delivery import Receiver

BREAKER_FAILURES = 5  # failures in a row that open a route's circuit breaker
DELIVERIES_MAX = 16  # at a time; each has a connection
CONCURRENCY_MAX = 2  # concurrent deliveries to one broker or host
ROUTES_MAX = 1000


class RouteState(Receiver):
    """One route's state in memory."""

    __slots__ = ("cursor", "slow")

    def __init__(self, failures_max: int) -> None:
        super().__init__(failures_max)
        self.slow = False
        self.cursor: Any = None


class Routes:
    """The state of every route that was tried. Waits are monotonic, so that a clock change
    doesn't matter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[str, RouteState] = {}

    def state(self, name: str) -> RouteState:
        return self._routes.setdefault(name, RouteState(BREAKER_FAILURES))

    def has_capacity(self, route: RouteState) -> bool:
        """Return whether the route may use the pool: all slow routes together get at most half."""
        if not route.free(self._clock.monotonic(), CONCURRENCY_MAX):
            return False
        if not (route.slow or route.breaker.failures):
            return True
        busy = sum(
            other.running for other in self._routes.values() if other.slow or other.breaker.failures
        )
        return busy < DELIVERIES_MAX // 2

    def open_names(self) -> list[str]:
        """Return routes whose circuit breaker is open."""
        return sorted(name for name, route in self._routes.items() if not route.breaker.is_closed)

    def drop_idle(self, due: Collection[str]) -> None:
        """Forget routes without work, deliveries or failures when there are too many."""
        if len(self._routes) > ROUTES_MAX:
            for name in [
                name
                for name, route in self._routes.items()
                if name not in due and not route.running and not route.breaker.failures
            ]:
                del self._routes[name]

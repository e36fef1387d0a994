"""Gives catch-ups an agent's claims on the worker bus."""

from collections.abc import Sequence

from appliance.bus.wire import READ
from appliance.hub.catchup.service import OwnClaim
from appliance.kernel.clock import Clock
from appliance.kernel.reader import Reader
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent

_OWN = (
    "SELECT task_id, claimed_at_ms, lease_until_ms FROM task_claims WHERE claimed_by = ?"
    " ORDER BY lease_until_ms LIMIT ?"
)


class BusClaims:
    scope = READ

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def own(self, name: str, limit: int) -> Sequence[OwnClaim]:
        """Return an agent's claims, the first to end first."""
        try:
            rows = self._store.read(_own, name, limit)
        except StoreAbsent:  # no agent has used the bus yet
            return ()
        now = self._clock.now_ms()
        return [
            OwnClaim(task, (now - claimed) // 1000, (until - now) // 1000)
            for task, claimed, until in rows
        ]


def _own(reader: Reader, name: str, limit: int) -> list[tuple[str, int, int]]:
    return reader.rows(_OWN, (name, limit), limit=limit)

"""The hub's pause book: reads the pauses from the store, and bounds posts."""

from typing import Any

from appliance.hub import ceilings, metrics, pausing, writes
from appliance.kernel.auth import Principal
from appliance.kernel.pause_book import PauseBook
from appliance.kernel.pauses import StoredPause
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store

OWN = "appliance:"  # begins the ids under which the appliance itself posts


class HubPauses(PauseBook):
    """The pauses, and the names with a ceiling."""

    def __init__(self, store: Store, steady: SteadyClock) -> None:
        super().__init__(steady.now_ms, steady.wall_iso, metrics.note_refusal)
        self._store = store
        self._ceilings: frozenset[str] = frozenset()
        self.agents = store.read(pausing.agents)
        self.load()

    def load(self) -> list[StoredPause]:
        """Read pauses and ceilings again. Return the pauses."""
        self._ceilings = self._store.read(ceilings.names)
        pauses: list[StoredPause] = self._store.read(pausing.page)
        self.replace(pauses)
        return pauses

    def has_ceiling(self, name: str) -> bool:
        return name in self._ceilings

    def posting_function(self, principal: Principal, sender: str) -> tuple[Any, ...]:
        """Return the function that posts, with the name that it counts. Raises Paused."""
        self.check(principal, (sender,))
        for name in (principal.label or principal.name, sender):
            if name in self._ceilings:
                return ceilings.post_counted, name
        return (writes.create_message,)

    def is_agent_post(self, principal: Principal, sender: str) -> bool | None:
        """Return whether an agent posts; None: the appliance itself."""
        return None if principal.id.startswith(OWN) else self.is_agent(principal, sender)

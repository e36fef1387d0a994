"""Counts claims on the worker bus, after their commit, for names with a ceiling."""

from appliance.hub.ceilings import count_claim
from appliance.hub.service import Hub


class ClaimCounter:
    """Counts at least once: after an error, the repeated claim counts again."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def count(self, name: str) -> None:
        pauses = self._hub.pauses
        if pauses.has_ceiling(name) and self._hub.store.write(count_claim, name):
            pauses.load()

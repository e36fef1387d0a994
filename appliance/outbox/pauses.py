"""Holds routes whose deliveries an operator paused. Sends are accepted meanwhile, and wait.

A pause names a route (`mail://example.com`) or a target with all its routes (`mail`).
Pauses are rows in `meta`, so they outlive the process.
"""

from typing import Any

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.meta import Executor
from appliance.kernel.steady_clock import SteadyClock
from appliance.outbox import ordering, wire

KEY = "paused:"  # and the name: a key in meta, whose value is the end or empty
PAUSES_MAX = 1000  # as many routes as have a state in memory
_ALL = "SELECT key, value FROM meta WHERE key GLOB 'paused:*' ORDER BY key LIMIT ?"


def read_all(reader: Executor) -> dict[str, int | None]:
    """Return each pause's end by the steady clock, or None without an end."""
    rows = reader.execute(_ALL, (PAUSES_MAX,))
    return {key.removeprefix(KEY): int(end) if end else None for key, end in rows}


def store_pause(tx: Tx, name: str, until_ms: int | None, ended: list[str]) -> None:
    delete_pauses(tx, ended)
    tx.execute(meta.SET, (KEY + name, str(until_ms or "")))


def delete_pauses(tx: Tx, names: list[str]) -> None:
    tx.executemany("DELETE FROM meta WHERE key = ?", [(KEY + name,) for name in names])


class Pauses:
    """The pauses, in memory and in the store. `store` is the outbox's."""

    def __init__(self, store: Any, steady: SteadyClock) -> None:
        self._store = store
        self._steady = steady
        self._ends: dict[str, int | None] = {}

    def open(self) -> None:
        self._ends = self._store.read(read_all)

    def holds(self, route: str, now_ms: int) -> bool:
        """Return whether deliveries on the route wait, at `now_ms` by the steady clock."""
        names = (ordering.without_order(route), route.partition(":")[0])
        return any(name in self._ends and not self._has_ended(name, now_ms) for name in names)

    def pause(self, name: str, seconds: float | None) -> None:
        """Pause a route or a target for `seconds`, or until it is resumed. Raises TooManyPauses."""
        now_ms = self._steady.now_ms()
        ended = [other for other in self._ends if self._has_ended(other, now_ms)]
        if name not in self._ends and len(self._ends) - len(ended) >= PAUSES_MAX:
            raise wire.TooManyPauses(details={"pauses_max": PAUSES_MAX})
        until_ms = None if seconds is None else now_ms + max(1, round(seconds * 1000))
        self._store.write(store_pause, name, until_ms, ended)
        self._ends = {
            **{other: end for other, end in self._ends.items() if other not in ended},
            name: until_ms,
        }

    def resume(self, name: str) -> None:
        """End a pause. Raises NotPaused, whose hint has the names that are paused."""
        if name not in self._ends:
            names = ", ".join(paused.route for paused in self.list()[:5])
            hint = f"one of {names}: {wire.NotPaused.default_hint}" if names else None
            raise wire.NotPaused(details={"route": name}, hint=hint)
        self._store.write(delete_pauses, [name])
        self._ends.pop(name, None)

    def list(self) -> list[wire.PausedRoute]:
        """Return the pauses that have not ended, by name."""
        now_ms = self._steady.now_ms()
        return [
            wire.PausedRoute(name, self._steady.wall_iso(end))
            for name, end in sorted(self._ends.items())
            if not self._has_ended(name, now_ms)
        ]

    def _has_ended(self, name: str, now_ms: int) -> bool:
        end = self._ends[name]
        return end is not None and end <= now_ms

"""Build derived data again in the running appliance, one part at a time.

request ─▶ the store is checked for damage, in a reader's thread
        ─▶ one transaction in the writer, for at most SECONDS_MAX
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from appliance.checks.repairs import DerivedPart
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, ReadTooLong
from appliance.kernel.store import Store
from doctor import damage, derived
from doctor.derived import DERIVED
from doctor.wire import (
    SECONDS_MAX,
    InvalidArguments,
    RebuildDone,
    RebuildNeedsStop,
    RebuildOnDamage,
    RebuildRequest,
    RebuildRunning,
)

RETRY_SECONDS = 1.0


class Rebuilds:
    """A running appliance's rebuilds.

    opened  the stores that the appliance has open
    enabled    all store names for its roles
    open_idle  opens one that nothing uses, for one rebuild
    """

    def __init__(
        self,
        opened: Mapping[str, Store],
        enabled: frozenset[str],
        open_idle: Callable[[str], Store],
        clock: Clock,
        log: Log,
    ) -> None:
        self._opened = opened
        self._enabled = enabled
        self._open_idle = open_idle
        self._clock = clock
        self._log = log
        self.running = ""

    def apply(self, request: RebuildRequest, by: str | None) -> RebuildDone:
        """Build the part again. `by`: the caller's name, for the log.

        Raise InvalidArguments, RebuildNeedsStop, RebuildRunning, RebuildTooLong, RebuildOnDamage,
        CannotRepair, or Unavailable. After an error the store is as before."""
        what, name = request.what, request.store
        part = DERIVED[what]
        if name not in part.stores:
            raise InvalidArguments(f"{what} is only in: {', '.join(part.stores)}")
        if name not in self._enabled:
            raise RebuildNeedsStop(f"the appliance does not use {name}: its role is off")
        if self.running:
            raise RebuildRunning(
                f"{RebuildRunning.default_message}: {self.running}", retry_after=RETRY_SECONDS
            )
        self.running = f"{what} of {name}"
        began = self._clock.monotonic()
        try:
            with self._use(name) as store:
                _refuse_damage(part, store)
                done = store.write_alone(
                    derived.rebuild_in_writer, msgspec.to_builtins(request), SECONDS_MAX
                )
        finally:
            self.running = ""
        seconds = round(self._clock.monotonic() - began, 3)
        self._log.info("derived data rebuilt", what=what, store=name, by=by, seconds=seconds)
        return RebuildDone(what, name, done, seconds)

    @contextmanager
    def _use(self, name: str) -> Iterator[Store]:
        if name in self._opened:
            yield self._opened[name]
            return
        store = self._open_idle(name)
        try:
            yield store
        finally:
            store.close()


def _refuse_damage(part: DerivedPart, store: Store) -> None:
    try:
        texts = store.read_slow(_problems)
    except ReadTooLong:
        raise RebuildNeedsStop(
            f"a complete check on {store.name} takes too long beside a running appliance"
        ) from None
    if not part.needs_indexes:
        texts = damage.beyond_indexes(texts)
    if texts:
        raise RebuildOnDamage(f"{store.name} is damaged, so it was not changed: {texts[0]}")


def _problems(reader: Reader) -> list[str]:
    return damage.problems(reader.connection)

"""Applies steps of a repair in the running appliance, one at a time.

    request ─▶ its arguments are checked ─▶ the store is checked for damage, in a reader's thread
            ─▶ one transaction in the writer, for at most `doctor.owner_step_seconds_max`

A store above `doctor.owner_step_bytes_max` is not changed: its writes would wait too long.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, ReadTooLong
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from doctor import damage, live_changes
from doctor.actions import ACTIONS
from doctor.live_changes import LIVE
from doctor.settings import MIB, DoctorSettings
from doctor.wire import (
    InvalidArguments,
    RepairStepDone,
    RepairStepRequest,
    StepNeedsStop,
    StepOnDamage,
    StepRunning,
    UnknownAction,
)

RETRY_SECONDS = 1.0


class OwnedStores:
    """The stores of the appliance's enabled roles. `opened`: those that it has open; it opens
    another one, which nothing uses, for one step."""

    def __init__(
        self,
        opened: Mapping[str, Store],
        enabled: frozenset[str],
        datadir: DataDir,
        settings: StoreSettings,
        clock: Clock,
        log: Log,
    ) -> None:
        self.enabled = enabled
        self._opened = opened
        self._datadir = datadir
        self._settings = settings
        self._clock = clock
        self._log = log

    @contextmanager
    def use(self, name: str) -> Iterator[Store]:
        if name in self._opened:
            yield self._opened[name]
            return
        store = Store(name, self._datadir.database(name), self._settings, self._clock, self._log)
        try:
            yield store
        finally:
            store.close()


class OwnerSteps:
    def __init__(
        self, stores: OwnedStores, settings: DoctorSettings, clock: Clock, log: Log
    ) -> None:
        self._stores = stores
        self._settings = settings
        self._clock = clock
        self._log = log
        self._running = ""

    @property
    def running(self) -> bool:
        return bool(self._running)

    def apply(self, request: RepairStepRequest, by: str | None) -> RepairStepDone:
        """Applies the step. `by`: the caller's name, for the log.

        Raises UnknownAction, InvalidArguments, StepNeedsStop, StepRunning, StepTooLong,
        StepOnDamage, CannotRepair, or Unavailable. Then the store is as before."""
        name = self._store_of(request)
        if self._running:
            raise StepRunning(
                f"{StepRunning.default_message}: {self._running}", retry_after=RETRY_SECONDS
            )
        self._running = f"{request.action} of {name}"
        began = self._clock.monotonic()
        try:
            with self._stores.use(name) as store:
                self._refuse(request.action, store)
                done = store.write_alone(
                    live_changes.apply,
                    request.action,
                    request.arguments,
                    self._settings.owner_step_seconds_max,
                )
        finally:
            self._running = ""
        seconds = round(self._clock.monotonic() - began, 3)
        self._log.info(
            "step of a repair applied", action=request.action, store=name, by=by, seconds=seconds
        )
        return RepairStepDone(request.action, request.arguments, done, seconds)

    def _store_of(self, request: RepairStepRequest) -> str:
        """The name of the store that a valid request changes."""
        if request.action not in ACTIONS:
            raise UnknownAction(details={"actions": sorted(LIVE)})
        live = LIVE.get(request.action)
        if live is None:
            raise StepNeedsStop(f"{request.action}: {StepNeedsStop.default_message}")
        if request.arguments.keys() != live.takes:
            raise InvalidArguments(
                f"{request.action} takes exactly: {', '.join(sorted(live.takes))}"
            )
        name = request.arguments["store"]
        if name not in live.stores:
            raise InvalidArguments(
                f"{request.action} changes only: {', '.join(sorted(live.stores))}"
            )
        if name not in self._stores.enabled:
            raise StepNeedsStop(f"the appliance does not use {name}: its role is off")
        return name

    def _refuse(self, action: str, store: Store) -> None:
        limit = self._settings.owner_step_bytes_max
        try:
            size = store.path.stat().st_size
        except OSError as error:
            raise StepNeedsStop(f"{store.name}: its file can't be read: {error.strerror}") from None
        if size > limit:
            raise StepNeedsStop(
                f"{store.name} has {size // MIB} MiB, more than `doctor.owner_step_bytes_max`"
                f" ({limit // MIB} MiB), so writes would wait too long"
            )
        try:
            texts = store.read_slow(_problems)
        except ReadTooLong:
            raise StepNeedsStop(
                f"a complete check of {store.name} takes longer than `store.read_seconds_max`"
            ) from None
        if ACTIONS[action].mends_indexes:
            texts = damage.beyond_indexes(texts)
        if texts:
            raise StepOnDamage(f"{store.name} is damaged, so it was not changed: {texts[0]}")


def _problems(reader: Reader) -> list[str]:
    return damage.problems(reader.connection)

"""The hub's background work: forgetting old idempotency keys, emptying the WAL."""

from appliance.hub import writes
from appliance.hub.settings import HubSettings
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store


class KeySweeper(Loop):
    """Removes idempotency rows past `hub.idempotency_hours`, a bounded piece a round."""

    name = "hub_key_sweeper"
    interval_seconds = 30.0

    def __init__(self, store: Store, settings: HubSettings, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        self._settings = settings

    def run_once(self, now_ms: int) -> dict[str, int]:
        before_ms = now_ms - int(self._settings.idempotency_hours * 3_600_000)
        forgotten = self._store.write(writes.forget_keys, before_ms, self._settings.sweep_rows_max)
        return {"forgotten": forgotten}


class Checkpointer(Loop):
    """Keeps a store's write-ahead log short, off the path of writers."""

    name = "checkpointer"

    def __init__(self, store: Store, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        self.interval_seconds = store.settings.checkpoint_seconds

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"checkpoints": int(self._store.checkpoint())}

"""The hub's background loops: indexing for search, and deleting expired idempotency keys."""

from appliance.hub import indexing, metrics, queries
from appliance.hub.settings import HubSettings
from appliance.kernel import idempotency
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.feed import Feed
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.kernel.writer import CatchUp


def prune_keys(store: Store, settings: HubSettings, now_ms: int) -> int:
    """Deletes idempotency keys older than `hub.idempotency_hours`, a limited number."""
    before_ms = now_ms - int(settings.idempotency_hours * HOUR_MS)
    return store.write(idempotency.forget_keys, before_ms, settings.sweep_rows_max)


class Indexer(Loop):
    """Indexes new messages for search when the writer is idle.

    Under load, `catch_up` does this within the writer's batches. New events wake the loop.
    """

    name = "hub_indexer"
    interval_seconds = 30.0
    shortest_seconds = 0.25

    def __init__(
        self, store: Store, feed: Feed, settings: HubSettings, clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log)
        self._store = store
        self._settings = settings
        feed.on_publish(self.nudge)
        self.nudge()  # for messages from before the start

    def run_once(self, now_ms: int) -> dict[str, int]:
        indexed = 0
        while (lag := self._store.read(queries.index_lag)) > 0:
            metrics.index_lag.set(lag)
            indexed += self._store.write(indexing.index_messages, self._settings.index_batch_max)
            if not self._store.idle:
                self.nudge()
                break
        else:
            metrics.index_lag.set(0)
        return {"indexed": indexed}


def catch_up(settings: HubSettings) -> CatchUp:
    """Keeps the index at most a second behind under any load; other programs read it too."""
    return CatchUp.of(indexing.keep_up, settings.index_seconds, settings.index_batch_max)

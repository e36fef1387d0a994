"""The hub's background loops: indexing for search, and pruning idempotency keys."""

from appliance.hub import indexing, metrics, queries
from appliance.kernel import idempotency
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.feed import Feed
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.kernel.writer import CatchUp

IDEMPOTENCY_HOURS = 48  # in which a retry with a known key is not applied again
PRUNED_KEYS_MAX = 5000  # in one transaction, while other writes wait
INDEX_BATCH_MAX = 200  # messages indexed in one commit, which takes about 2 ms
INDEX_SECONDS = 0.1  # between index updates while messages arrive


def prune_keys(store: Store, now_ms: int) -> int:
    """Prune idempotency keys, a limited number."""
    before_ms = now_ms - IDEMPOTENCY_HOURS * HOUR_MS
    return store.write(idempotency.prune_keys, before_ms, PRUNED_KEYS_MAX)


class Indexer(Loop):
    """Indexes new messages for search when the writer is idle.

    Under load, `catch_up` does this within the writer's batches. New events wake the loop.
    """

    name = "hub_indexer"
    interval_seconds = 30.0
    shortest_seconds = 0.25

    def __init__(self, store: Store, feed: Feed, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._store = store
        feed.on_publish(self.nudge)
        self.nudge()  # for messages from before the start

    def run_once(self, now_ms: int) -> dict[str, int]:
        indexed = 0
        while (lag := self._store.read(queries.index_lag)) > 0:
            metrics.index_lag.set(lag)
            indexed += self._store.write(indexing.index_messages, INDEX_BATCH_MAX)
            if not self._store.idle:
                self.nudge()
                break
        else:
            metrics.index_lag.set(0)
        return {"indexed": indexed}


def catch_up() -> CatchUp:
    """Return the work that keeps the index, which other programs read too, at most a second behind
    under any load."""
    return CatchUp(indexing.keep_up, INDEX_SECONDS, INDEX_BATCH_MAX)

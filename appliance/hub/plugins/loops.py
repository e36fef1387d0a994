"""PluginRunner: runs one plugin over the event log, from its stored cursor."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from appliance.hub.plugins import metrics, queries, writes
from appliance.hub.plugins.pending_messages import CREATED, DELETED, EDITED, PendingMessages
from appliance.hub.plugins.plugin import Plugin
from appliance.hub.plugins.worker import PluginFailure
from appliance.hub.rows import PluginCursorRow
from appliance.kernel.batch import Call
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.feed import Feed, FeedSubscription
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.workspace.epochs import ids_between

PIECE_EVENTS = 500  # read from the log at once
WANTED = (CREATED, EDITED)
TOGETHER = 16  # messages whose results are stored together
ROUND_MESSAGES = 500  # in one round
QUEUE_MAX = 1  # events are read from the log, so the queue keeps none
IDLE_SECONDS = 5.0
CURSOR_SECONDS = 1.0  # between writes of a cursor that passed nothing relevant
PENDING_MAX = 1000  # messages that were read from the log and not processed yet
DEBOUNCE_MS = 1000  # from an edit to its processing; each edit restarts the wait
DEBOUNCE_MS_MAX = 10_000  # from the first of several edits
REST_SECONDS_MIN = 1.0  # after the store has refused a write


class PluginRunner(Loop):
    """One greenlet for each plugin, so that a hanging plugin blocks no other."""

    name = "hub_plugin_runner"
    shortest_seconds = 0.1  # new messages are processed together

    def __init__(
        self,
        plugin: Plugin,
        store: Store,
        feed: Feed,
        clock: Clock,
        log: Log,
        epochs: Iterable[tuple[int, str]] = (),
    ) -> None:
        """Take the plugin. `epochs`: the epochs' first event ids, see `ProcessIdentity`."""
        super().__init__(clock, log)
        self._epochs = tuple(epochs)
        self.plugin = plugin
        self._subscription: FeedSubscription | None = None
        self._store = store
        self._feed = feed
        self._pending: PendingMessages | None = None
        self._stored = 0  # the cursor in the database
        self._stored_at = float("-inf")
        self._may_redo = True
        self._rest_until = float("-inf")

    @property
    def cursor(self) -> int:
        return 0 if self._pending is None else self._pending.cursor

    @property
    def pending(self) -> int:
        return 0 if self._pending is None else self._pending.count

    @property
    def lag(self) -> int:
        if self._pending is None:
            return 0
        return ids_between(self._pending.cursor, self._feed.head, self._epochs)

    def start(self) -> None:
        """Start; called before anything is served, so that a new plugin sees every message from
        now on."""
        try:
            self._begin()
        except ApplianceError as error:
            # On a full disk nothing can be posted either; the first round retries.
            self.log.warning("no cursor yet", plugin=self.plugin.name, code=error.code)
        self._subscription = self._feed.subscribe(QUEUE_MAX, direct=self._on_publish)
        super().start()

    def stop(self, timeout_seconds: float = 0.5) -> None:
        if self._subscription is not None:
            self._feed.unsubscribe(self._subscription)
        super().stop(timeout_seconds)

    def _on_publish(self, _items: Sequence[Any]) -> bool:
        """Wake the loop, which reads the event from the log."""
        self.nudge()
        return True

    @property
    def interval_seconds(self) -> float:  # type: ignore[override]
        """Return the seconds until the next round if nothing is published."""
        plugin, pending = self.plugin, self._pending
        if plugin.broken:
            return IDLE_SECONDS
        if plugin.paused:
            return REST_SECONDS_MIN
        if pending is None or pending.count or self._may_redo or self.lag:
            return self.shortest_seconds
        if pending.cursor != self._stored:
            return CURSOR_SECONDS
        return IDLE_SECONDS

    def request_redo(self) -> None:
        """Note that reprocessing was requested."""
        self._may_redo = True
        self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        """Run one round, unless the store has refused writes recently."""
        if self._subscription is not None and self._subscription.lagging:
            self._subscription.recover()  # the feed jumped; the log has everything
        if self.clock.monotonic() < self._rest_until:
            return {}
        try:
            return self._round(now_ms)
        except Unavailable as error:
            # The results are lost; their messages are still pending.
            seconds = max(REST_SECONDS_MIN, error.retry_after or 0.0)
            self._rest_until = self.clock.monotonic() + seconds
            self.log.warning(
                "a plugin waits for the store", plugin=self.plugin.name, code=error.code
            )
            return {}

    def _round(self, now_ms: int) -> dict[str, int]:
        """Process new messages, then reprocess; at most ROUND_MESSAGES together."""
        pending = self._begin() if self._pending is None else self._pending
        counts = {"done": 0, "failed": 0, "stale": 0}
        plugin = self.plugin
        if plugin.broken or plugin.paused:
            return counts
        left = ROUND_MESSAGES
        while left > 0 and not plugin.paused:
            self._read_on(pending, now_ms)
            due = pending.due(now_ms, min(TOGETHER, left))
            if not due:
                break
            left -= len(due)
            if not self._take(pending, due, counts):
                break
            now_ms = self.clock.now_ms()
        else:
            left = 0
        if self._may_redo and left > 0 and not plugin.paused:
            self._redo(left, counts)
        self.flush(within=CURSOR_SECONDS)
        plugin.rest()
        return counts

    def flush(self, within: float = 0.0) -> None:
        """Store the cursor if it moved, at most every `within` seconds."""
        pending, now = self._pending, self.clock.monotonic()
        if pending is None or pending.cursor == self._stored or now - self._stored_at < within:
            return
        cursor = pending.cursor
        self._store.write(writes.move_cursor, self.plugin.name, cursor)
        self._stored, self._stored_at = cursor, now

    def _begin(self) -> PendingMessages:
        name = self.plugin.name
        stored: PluginCursorRow | None = self._store.read(queries.cursor, name)
        stored = stored or self._store.write(writes.begin, name, self._feed.head)
        self._stored = stored.cursor
        self._pending = PendingMessages(
            # A restored database may end before the stored cursor.
            min(stored.cursor, self._feed.head),
            PENDING_MAX,
            DEBOUNCE_MS,
            DEBOUNCE_MS_MAX,
        )
        return self._pending

    def _read_on(self, pending: PendingMessages, now_ms: int) -> None:
        """Read new events from the log until enough messages are pending."""
        while pending.has_capacity and pending.position < (head := self._feed.head):
            piece = self._read(pending.position, head, PIECE_EVENTS)
            for event_id, name, entity_id, ts, fits in piece:
                if fits or name == DELETED:
                    pending.note(event_id, name, entity_id, _ms(ts, now_ms), now_ms)
                else:
                    pending.position = event_id
            if len(piece) < PIECE_EVENTS:
                pending.position = head

    def _read(self, after: int, until: int, events_max: int) -> list[queries.LogEntry]:
        return self._store.read(queries.log_piece, after, until, events_max, self.plugin.needed)

    def _take(self, pending: PendingMessages, ids: list[str], counts: dict[str, int]) -> bool:
        """Process messages and store the results. False if the plugin can't work at the moment."""
        messages = self._store.read(queries.messages, ids)
        worked: list[tuple[str, Call]] = []
        able = True
        for message_id in ids:
            message = messages.get(message_id)
            if message is None or message.deleted_at is not None:
                pending.remove(message_id)
                continue
            try:
                worked.append((message_id, self.plugin.work(message)))
            except PluginFailure as failure:
                able = not failure.passing
                if able:
                    counts["failed"] += 1
                    pending.remove(message_id)
            if not able or self.plugin.paused:
                break
        for message_id, outcome in self._keep(worked):
            if outcome == "stale":
                counts["stale"] += 1
                pending.defer(message_id, self.clock.now_ms())
            else:
                counts["done"] += 1
                pending.remove(message_id)
        return able

    def _keep(self, worked: list[tuple[str, Call]]) -> list[tuple[str, str]]:
        """Store results; return (message id, outcome) pairs. Raises if the store refuses all;
        the messages are then still pending."""
        if not worked:
            return []
        done, error = [], None
        outcomes = self._store.write_many([call for _, call in worked])
        for (message_id, _), outcome in zip(worked, outcomes, strict=True):
            if isinstance(outcome.error, Unavailable):
                error = outcome.error
                continue
            if outcome.error is not None:
                self.log.error(
                    "a plugin's result was refused", outcome.error,
                    plugin=self.plugin.name, message_id=message_id,
                )  # fmt: skip
                done.append((message_id, "refused"))
                continue
            what, items = outcome.result
            if what == "stale":
                metrics.stale.labels(self.plugin.name).inc()
            metrics.stored.labels(self.plugin.name).inc(items)
            done.append((message_id, what))
        if error is not None and not done:
            raise error  # if some were stored, the next round retries the rest
        return done

    def _redo(self, events_max: int, counts: dict[str, int]) -> None:
        """Process a piece of a `re-enrich` request; its cursor moves after everything is stored."""
        self._may_redo = False  # before reading: a request made meanwhile sets the event again
        stored: PluginCursorRow | None = self._store.read(queries.cursor, self.plugin.name)
        if stored is None or stored.redo_cursor is None or stored.redo_until is None:
            return
        self._may_redo = True
        piece = self._read(stored.redo_cursor, stored.redo_until, events_max)
        ids = dict.fromkeys(entity_id for _, name, entity_id, _, _ in piece if name in WANTED)
        pending = PendingMessages(stored.redo_cursor, len(ids) + 1, 0, 0)
        for event_id, name, entity_id, _, fits in piece:
            if fits or name == DELETED:
                pending.note(event_id, name, entity_id, 0, 0)
            else:
                pending.position = event_id
        while (due := pending.due(self.clock.now_ms(), TOGETHER)) and not self.plugin.paused:
            if not self._take(pending, due, counts):
                break
        reached = pending.cursor
        if len(piece) < events_max and not pending.count:
            reached = stored.redo_until
        if reached > stored.redo_cursor or reached >= stored.redo_until:
            self._store.write(writes.move_redo, self.plugin.name, stored.redo_cursor, reached)


def _ms(ts: str, now_ms: int) -> int:
    """Return an event's time in milliseconds; `now_ms` if another program wrote no valid time."""
    try:
        return int(datetime.fromisoformat(ts).timestamp() * 1000)
    except ValueError:
        return now_ms

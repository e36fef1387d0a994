"""Hands the events after each webhook's cursor to the outbox, then moves the cursor.

After a crash between the two, the same events are handed over again; the outbox recognises their
ids. Events that the outbox doesn't accept wait in the log.
"""

from appliance.hub.rows import EventWebhookRow
from appliance.hub.webhooks import metrics, queries, writes
from appliance.hub.webhooks.service import OutgoingEvent, Webhooks
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.registered_webhook import WebhookOutbox

FEED_MAX = 50  # one webhook's events handed to the outbox in a round
WAITING_MAX = 1000  # one webhook's events in the outbox, which a dead receiver must not fill
FEED_SECONDS = 0.25  # seconds between rounds that hand events to the outbox


class WebhookFeeder(Loop):
    """Woken by new events and changed webhooks; repeats while events wait for the outbox."""

    name = "webhook_feeder"
    shortest_seconds = 0.02
    idle_seconds = 30.0

    def __init__(
        self, webhooks: Webhooks, post: WebhookOutbox[OutgoingEvent], clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log, work=webhooks.work)
        self._webhooks = webhooks
        self._post = post

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = FEED_SECONDS
        self._post.retry(self._webhooks.changed)
        store, head = self._webhooks.store, self._webhooks.head
        moves, handed, blocked = [], 0, 0
        rows = store.read(queries.find_enabled, writes.WEBHOOKS_MAX)
        self._webhooks.is_used = bool(rows)
        for row in (row for row in rows if row.cursor < head):
            cursor, taken = self._serve(row, head)
            handed += taken
            blocked += taken == 0 and cursor == row.cursor
            if cursor > row.cursor:
                moves.append((row.id, row.generation, row.cursor, cursor))
        if moves:
            store.write(writes.advance, moves)
            if any(cursor < head for *_, cursor in moves):
                self.nudge()
        metrics.events.inc(handed)
        metrics.waiting_webhooks.set(blocked)
        if not blocked:
            self.interval_seconds = self.idle_seconds
        return {"handed": handed, "moved": len(moves), "held": blocked}

    def _serve(self, row: EventWebhookRow, head: int) -> tuple[int, int]:
        """Hand over some of a webhook's events; return its new cursor and the number accepted."""
        capacity = WAITING_MAX - self._post.waiting(row.id, WAITING_MAX)
        if capacity <= 0:
            return row.cursor, 0
        handed, reached = self._webhooks.next_events(row, head, min(capacity, FEED_MAX))
        taken = self._post.accept(handed) if handed else 0
        if taken == len(handed):
            return reached, taken
        return (handed[taken - 1].event_id if taken else row.cursor), taken

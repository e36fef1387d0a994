"""Feeds webhooks: hands the events behind each cursor to the outbox, then moves the cursor.

In that order, and under ids made of the event: a crash between the two hands the same events
over again, and the outbox knows them. What the outbox does not take stays behind the cursor.
"""

from collections.abc import Sequence
from typing import Protocol

from appliance.hub.webhooks import metrics, queries, writes
from appliance.hub.webhooks.queries import Row
from appliance.hub.webhooks.service import Handed, Webhooks
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop


class Post(Protocol):
    """Where events go; the roof hands it in."""

    def waiting(self, webhook_id: str, most: int) -> int:
        """How many of a webhook's events are not delivered yet, counted up to `most`."""
        ...

    def take(self, handed: Sequence[Handed]) -> int:
        """How many were taken, from the first on; those are kept for good."""
        ...


class WebhookFeeder(Loop):
    """Woken by new events and by changes of webhooks; looks again while events are held back."""

    name = "webhook_feeder"
    shortest_seconds = 0.02
    idle_seconds = 30.0

    def __init__(self, webhooks: Webhooks, post: Post, clock: Clock, log: Log) -> None:
        super().__init__(clock, log, work=webhooks.work)
        self._webhooks = webhooks
        self._post = post
        self._settings = webhooks.settings

    def run_once(self, now_ms: int) -> dict[str, int]:
        self.interval_seconds = self._settings.feed_seconds
        store, head = self._webhooks.store, self._webhooks.head
        moves, handed, held = [], 0, 0
        for row in store.read(queries.behind, head, self._settings.webhooks_max):
            cursor, taken = self._serve(row, head)
            handed += taken
            held += taken == 0 and cursor == row.cursor
            if cursor > row.cursor:
                moves.append((row.id, row.generation, row.cursor, cursor))
        if moves:
            store.write(writes.advance, moves)
            if any(cursor < head for *_, cursor in moves):
                self.nudge()
        metrics.events.inc(handed)
        metrics.held.set(held)
        if not held:
            self.interval_seconds = self.idle_seconds
        return {"handed": handed, "moved": len(moves), "held": held}

    def _serve(self, row: Row, head: int) -> tuple[int, int]:
        """A bounded piece for one webhook: its new cursor, and how many were taken."""
        settings = self._settings
        room = settings.waiting_max - self._post.waiting(row.id, settings.waiting_max)
        if room <= 0:
            return row.cursor, 0
        handed, reached = self._webhooks.ahead(row, head, min(room, settings.feed_max))
        taken = self._post.take(handed) if handed else 0
        if taken == len(handed):
            return reached, taken
        return (handed[taken - 1].event_id if taken else row.cursor), taken

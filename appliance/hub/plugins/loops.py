"""PluginRunner: takes one plugin along the event log, from its stored cursor."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from appliance.hub import wire as hub_wire
from appliance.hub.plugins import metrics, queries, writes
from appliance.hub.plugins.pending_messages import CREATED, DELETED, EDITED, Agenda
from appliance.hub.plugins.plugin import Plugin
from appliance.hub.plugins.queries import Cursor
from appliance.hub.plugins.worker import Failure
from appliance.kernel.batch import Call
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.feed import Feed, Subscription
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store

PIECE_EVENTS = 500  # read from the log at once
WANTED = (CREATED, EDITED)
TOGETHER = 16  # messages whose results are stored together
ROUND_MESSAGES = 500  # in one round
NEWS_MAX = 1  # none is kept: the log is where they are read
IDLE_SECONDS = 5.0
REST_SECONDS_MIN = 1.0  # after the store has refused


class PluginRunner(Loop):
    """One greenlet a plugin: one that hangs keeps no other waiting."""

    name = "hub_plugin_runner"

    def __init__(self, plugin: Plugin, store: Store, feed: Feed, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self.plugin = plugin
        self.shortest_seconds = plugin.settings.poll_seconds
        self._news: Subscription | None = None
        self._store = store
        self._feed = feed
        self._agenda: Agenda | None = None
        self._stored = 0  # the cursor in the database
        self._stored_at = float("-inf")
        self._may_redo = True
        self._rest_until = float("-inf")

    @property
    def cursor(self) -> int:
        return 0 if self._agenda is None else self._agenda.mark

    @property
    def pending(self) -> int:
        return 0 if self._agenda is None else self._agenda.pending

    @property
    def lag(self) -> int:
        return 0 if self._agenda is None else max(0, self._feed.head - self._agenda.mark)

    def start(self) -> None:
        """Before anything is served: a new plugin sees all that is posted from now on."""
        try:
            self._begin()
        except ApplianceError as error:
            # With a full disk nothing is posted either; the first round tries again.
            self.log.warning("no cursor yet", plugin=self.plugin.name, code=error.code)
        self._news = self._feed.subscribe(NEWS_MAX)
        self._news.direct = self._hear
        super().start()

    def stop(self, timeout_seconds: float = 0.5) -> None:
        if self._news is not None:
            self._feed.unsubscribe(self._news)
        super().stop(timeout_seconds)

    def _hear(self, _items: Sequence[Any]) -> bool:
        """There is something in the log: it is read there, not here."""
        self.nudge()
        return True

    @property
    def interval_seconds(self) -> float:  # type: ignore[override]
        """Until a round without news: one is due soon, or only looks after an idle process."""
        plugin, agenda = self.plugin, self._agenda
        if plugin.broken:
            return IDLE_SECONDS
        if plugin.paused:
            return REST_SECONDS_MIN
        if agenda is None or agenda.pending or self._may_redo or self.lag:
            return plugin.settings.poll_seconds
        if agenda.mark != self._stored:
            return plugin.settings.cursor_seconds
        return IDLE_SECONDS

    def look_for_redo(self) -> None:
        """Something was asked for again."""
        self._may_redo = True
        self.nudge()

    def run_once(self, now_ms: int) -> dict[str, int]:
        """A round, unless the store refused the last one and wants to be left alone."""
        if self._news is not None and self._news.lagging:  # the feed jumped; the log has it all
            self._news.recover()
        if self.clock.monotonic() < self._rest_until:
            return {}
        try:
            return self._round(now_ms)
        except Unavailable as error:
            # What was found is lost, and the messages are still on the agenda.
            seconds = max(REST_SECONDS_MIN, error.retry_after or 0.0)
            self._rest_until = self.clock.monotonic() + seconds
            self.log.warning("a plugin waits", plugin=self.plugin.name, code=error.code)
            return {}

    def _round(self, now_ms: int) -> dict[str, int]:
        """What has come in, then what was asked for again, at most ROUND_MESSAGES of both."""
        agenda = self._begin() if self._agenda is None else self._agenda
        counts = {"done": 0, "failed": 0, "stale": 0}
        plugin = self.plugin
        if plugin.broken or plugin.paused:
            metrics.lag.labels(plugin.name).set(self.lag)
            return counts
        left = ROUND_MESSAGES
        while left > 0 and not plugin.paused:
            self._read_on(agenda, now_ms)
            due = agenda.due(now_ms, min(TOGETHER, left))
            if not due:
                break
            left -= len(due)
            if not self._take(agenda, due, counts):
                break
            now_ms = self.clock.now_ms()
        else:
            left = 0
        if self._may_redo and left > 0 and not plugin.paused:
            self._redo(left, counts)
        self.flush(within=plugin.settings.cursor_seconds)
        metrics.lag.labels(plugin.name).set(self.lag)
        plugin.rest()
        return counts

    def flush(self, within: float = 0.0) -> None:
        """Store the cursor if it moved, unless that was done less than `within` ago."""
        agenda, now = self._agenda, self.clock.monotonic()
        if agenda is None or agenda.mark == self._stored or now - self._stored_at < within:
            return
        mark = agenda.mark
        self._store.write(writes.move_cursor, self.plugin.name, mark)
        self._stored, self._stored_at = mark, now

    def _begin(self) -> Agenda:
        name, settings = self.plugin.name, self.plugin.settings
        found: Cursor | None = self._store.read(queries.cursor, name)
        found = found or self._store.write(writes.begin, name, self._feed.head)
        self._stored = found.cursor
        self._agenda = Agenda(
            # A restored database may end before the cursor of its former life.
            min(found.cursor, self._feed.head),
            settings.pending_max,
            int(settings.debounce_seconds * 1000),
            int(settings.debounce_seconds_max * 1000),
        )
        return self._agenda

    def _read_on(self, agenda: Agenda, now_ms: int) -> None:
        """Fill the agenda from the log, as far as there is room and something new."""
        while agenda.has_room and agenda.position < (head := self._feed.head):
            piece = self._read(agenda.position, head, PIECE_EVENTS)
            for event_id, name, entity_id, ts, fits in piece:
                if fits or name == DELETED:
                    agenda.note(event_id, name, entity_id, _ms(ts, now_ms), now_ms)
                else:
                    agenda.position = event_id
            if len(piece) < PIECE_EVENTS:
                agenda.position = head

    def _read(self, after: int, until: int, most: int) -> list[queries.LogEntry]:
        return self._store.read(queries.log_piece, after, until, most, self.plugin.needed)

    def _take(self, agenda: Agenda, ids: list[str], counts: dict[str, int]) -> bool:
        """Work on them and store; False when the plugin can't work just now."""
        messages = self._store.read(queries.messages, ids)
        worked: list[tuple[str, Call]] = []
        able = True
        for message_id in ids:
            message = messages.get(message_id)
            if message is None or message.deleted_at is not None:
                agenda.done(message_id)
                continue
            try:
                worked.append((message_id, self._work(message)))
            except Failure as failure:
                able = not failure.passing
                if able:
                    counts["failed"] += 1
                    agenda.done(message_id)
            if not able or self.plugin.paused:
                break
        for message_id, outcome in self._keep(worked):
            if outcome == "stale":
                counts["stale"] += 1
                agenda.again(message_id, self.clock.now_ms())
            else:
                counts["done"] += 1
                agenda.done(message_id)
        return able

    def _work(self, message: hub_wire.Message) -> Call:
        with self.plugin.turn:
            return self.plugin.work(message)

    def _keep(self, worked: list[tuple[str, Call]]) -> list[tuple[str, str]]:
        """Store what was found; what became of each. Raises if the store refuses: then the
        messages are still on the agenda."""
        if not worked:
            return []
        done, trouble = [], None
        outcomes = self._store.write_many([call for _, call in worked])
        for (message_id, _), outcome in zip(worked, outcomes, strict=True):
            if isinstance(outcome.error, Unavailable):
                trouble = outcome.error
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
        if trouble is not None and not done:
            raise trouble  # of the others, the next round hears
        return done

    def _redo(self, most: int, counts: dict[str, int]) -> None:
        """A piece of what `re-enrich` asked for. Its cursor moves when all of it is stored."""
        self._may_redo = False  # before looking: what is asked for meanwhile says so again
        asked: Cursor | None = self._store.read(queries.cursor, self.plugin.name)
        if asked is None or asked.redo_cursor is None or asked.redo_until is None:
            return
        self._may_redo = True
        piece = self._read(asked.redo_cursor, asked.redo_until, most)
        ids = dict.fromkeys(entity_id for _, name, entity_id, _, _ in piece if name in WANTED)
        again = Agenda(asked.redo_cursor, len(ids) + 1, 0, 0)
        for event_id, name, entity_id, _, fits in piece:
            if fits or name == DELETED:
                again.note(event_id, name, entity_id, 0, 0)
            else:
                again.position = event_id
        while (due := again.due(self.clock.now_ms(), TOGETHER)) and not self.plugin.paused:
            if not self._take(again, due, counts):
                break
        reached = again.mark
        if len(piece) < most and not again.pending:
            reached = asked.redo_until
        if reached > asked.redo_cursor or reached >= asked.redo_until:
            self._store.write(writes.move_redo, self.plugin.name, asked.redo_cursor, reached)


def _ms(ts: str, now_ms: int) -> int:
    """When an event happened; other programs may have written something else."""
    try:
        return int(datetime.fromisoformat(ts).timestamp() * 1000)
    except ValueError:
        return now_ms

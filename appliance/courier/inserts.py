"""The way into a stream: room, triggers, journal, stream, view; in this order.

Most envelopes take the short way: a stream in memory with room and without triggers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.bucket import Bucket
from appliance.courier.envelope import Parsed, as_dict, encode, parse
from appliance.courier.item import DEAD, Item
from appliance.courier.journal import Journal, Row, folded
from appliance.courier.policy import is_name, matches
from appliance.courier.queue import Queue
from appliance.courier.ring import Ring
from appliance.courier.settings import CourierSettings
from appliance.courier.trigger import NO_OUTBOX, Effect, Engine, Rule, of_type
from appliance.courier.view import View, is_inbox
from appliance.courier.writes import Entry
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Forbidden, Invalid, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.wakeup import Signal

Sink = Callable[[str, str, dict[str, Any]], None]
"""(to, key, payload): the same key is the same webhook, however often it is handed over."""

RETRY_SECONDS = 1.0
CHANGES_MAX = 5_000  # told to the journal at once
FOLD_AT = 100_000  # changes that wait for a journal that hears nothing


class Fit:
    """What is known of a stream beside its envelopes."""

    __slots__ = ("bucket", "inbox", "last_ms", "rules")

    def __init__(self, rules: tuple[Rule, ...], inbox: bool, bucket: Bucket | None) -> None:
        self.rules = rules
        self.inbox = inbox
        self.bucket = bucket
        self.last_ms = 0


class Inserts:
    def __init__(
        self,
        queue: Queue,
        engine: Engine,
        latest: View,
        settings: CourierSettings,
        clock: Clock,
        log: Log,
        journal: Journal | None,
        sink: Sink | None = None,
    ) -> None:
        """`sink` takes what webhook actions send, at once and for good, or raises."""
        self.fits: dict[str, Fit] = {}
        self._queue = queue
        self._engine = engine
        self._latest = latest
        self._settings = settings
        self._clock = clock
        self._log = log
        self._journal = journal
        self._sink = sink
        self._waiting: dict[str, set[Signal]] = {}  # producers at full streams that block
        self._bytes = 0  # in all streams; never less than the truth
        self._closed = False
        self._fold_at = FOLD_AT

    def now(self) -> float:
        return self._clock.monotonic() * 1000

    # -- streams ---------------------------------------------------------------------------

    def open(self, name: str) -> Ring:
        """The stream of this name; refused when there may be no more, or none of that name."""
        ring = self._queue.rings.get(name)
        if ring is not None:
            return ring
        check_name(name)
        settings = self._settings
        if settings.fixed and settings.pattern_of(name) == "other":
            raise wire.NoSuchStream(
                "this appliance has only the streams that its settings declare",
                details={"stream": name},
            )
        if len(self._queue.rings) >= settings.streams_max:
            raise wire.TooManyStreams(retry_after=RETRY_SECONDS)
        ring = self._queue.open(name, self.now())
        if ring.policy.durable and self._journal is None:
            raise Unavailable("the journal of durable streams is not open")
        self._fit(ring)
        return ring

    def _fit(self, ring: Ring) -> Fit:
        policy = ring.policy
        bucket = Bucket(policy.rate, policy.burst, self.now()) if policy.rate else None
        fit = Fit(self._engine.for_stream(ring.name), is_inbox(ring.name), bucket)
        self.fits[ring.name] = fit
        return fit

    def forget(self) -> None:
        """Streams that the queue has forgotten are forgotten here as well."""
        for name in [name for name in self.fits if name not in self._queue.rings]:
            del self.fits[name]
        self._bytes = sum(ring.bytes for ring in self._queue.rings.values())

    # -- inserting ---------------------------------------------------------------------------

    def insert(self, ring: Ring, parsed: Sequence[Parsed]) -> int:
        """Into `ring`, in order, and out again to whoever has credit; counts duplicates."""
        fit = self.fits.get(ring.name) or self._fit(ring)
        size = 0
        for one in parsed:
            size += len(one.body)
        if fit.bucket is not None:
            wait = fit.bucket.take(len(parsed), self.now())
            if wait:
                raise wire.TooFast(
                    details={"scope": "stream", "stream": ring.name}, retry_after=wait
                )
        self._make_room(ring, parsed, size)
        effects: list[tuple[Effect, str]] = []
        if fit.rules:
            parsed, effects = self._enrich(ring, fit.rules, parsed)
        if ring.policy.durable:
            duplicates = self._put_durable(ring, parsed)
        else:
            duplicates = self._put(ring, parsed)
        if effects:
            self._carry_out(effects)
        return duplicates

    def _put(self, ring: Ring, parsed: Sequence[Parsed], rows: Sequence[int] = ()) -> int:
        now, put = self.now(), ring.put
        duplicates, last = 0, None
        for place, one in enumerate(parsed):
            item = put(one.id, one.body, now, one.options)
            if item is None:
                duplicates += 1
                if rows:
                    ring.changes.append(("gone", rows[place]))
                continue
            last = one
            if rows:
                item.row = rows[place]
        fit = self.fits.get(ring.name) or self._fit(ring)
        fit.last_ms = self._clock.now_ms()
        if fit.inbox and last is not None:
            self._is_latest(ring, last.body)
        if ring.lanes.open and ring.seats:
            self._queue.deal(ring, now)
        if self._settings.event_log:
            ids = [one.id for one in parsed[:100]]
            self._log.info("courier", event="enqueue", stream=ring.name, ids=ids)
        return duplicates

    def _is_latest(self, ring: Ring, body: bytes) -> None:
        unseen = self._latest.put(ring.name, body)
        if unseen and self._journal is not None:
            self._queue.changes += [("unseen", stream) for stream in unseen]

    def _put_durable(self, ring: Ring, parsed: Sequence[Parsed]) -> int:
        """Journal first. Places are reserved, so that there is room when it comes back."""
        new: dict[str, Parsed] = {}
        for one in parsed:
            if not ring.knows(one.id):
                new.setdefault(one.id, one)
        fresh = list(new.values())
        if not fresh or self._journal is None:
            return self._put(ring, parsed)
        entries = [self._entry(ring, one) for one in fresh]
        ring.reserved += len(fresh)
        try:
            rows = self._journal.append(entries, is_inbox(ring.name))
        finally:
            ring.reserved -= len(fresh)
        return len(parsed) - len(fresh) + self._put(ring, fresh, rows)

    def _entry(self, ring: Ring, one: Parsed) -> Entry:
        now_ms, options = self._clock.now_ms(), one.options
        ttl_ms = options.ttl_ms or ring.policy.ttl_ms
        return (
            ring.name, one.id, one.body, options.priority, options.key, now_ms,
            now_ms + int(options.delay_ms) if options.delay_ms else None,
            now_ms + int(ttl_ms) if ttl_ms else None,
        )  # fmt: skip

    # -- room ----------------------------------------------------------------------------------

    def _make_room(self, ring: Ring, parsed: Sequence[Parsed], size: int) -> None:
        """Room for all of them, or an error: nobody gets in halfway."""
        total_max = self._settings.bytes_total_max
        self._bytes += size
        if self._bytes > total_max:
            self.forget()
            if self._bytes + size > total_max:
                raise wire.MemoryFull(details={"limit": total_max}, retry_after=RETRY_SECONDS)
            self._bytes += size
        if ring.has_room(len(parsed), size):
            return
        parsed = [one for one in parsed if not ring.knows(one.id)]
        size = sum(len(one.body) for one in parsed)
        policy = ring.policy
        if policy.full == "drop_oldest" and ring.could_make_room(len(parsed), size):
            now = self.now()
            while not ring.has_room(len(parsed), size):
                if not ring.drop_oldest(now):
                    break
        elif policy.full == "block" and len(parsed) <= policy.depth_max:
            self._wait_for_room(ring, len(parsed), size)
        if parsed and not ring.has_room(len(parsed), size):
            raise wire.StreamFull(
                details={"stream": ring.name, "depth": ring.depth, "limit": policy.depth_max},
                retry_after=RETRY_SECONDS,
            )

    def _wait_for_room(self, ring: Ring, count: int, size: int) -> None:
        waiting = self._waiting.setdefault(ring.name, set())
        if sum(len(one) for one in self._waiting.values()) >= self._settings.waiting_max:
            raise wire.TooManyWaiting
        signal = Signal()
        waiting.add(signal)
        deadline = self.now() + ring.policy.block_ms
        try:
            while not ring.has_room(count, size) and not self._closed:
                left = deadline - self.now()
                if left <= 0 or not signal.wait(left / 1000):
                    return
                signal.clear()
        finally:
            waiting.discard(signal)
            if not waiting:
                self._waiting.pop(ring.name, None)

    def room(self, ring: Ring) -> None:
        """An envelope left the stream: producers that wait may look again."""
        for signal in tuple(self._waiting.get(ring.name, ())):
            signal.set()

    # -- triggers ------------------------------------------------------------------------------

    def _enrich(
        self, ring: Ring, rules: tuple[Rule, ...], parsed: Sequence[Parsed]
    ) -> tuple[list[Parsed], list[tuple[Effect, str]]]:
        """What goes in after the rules have seen it, and what they want done afterwards."""
        out: list[Parsed] = []
        effects: list[tuple[Effect, str]] = []
        seen: set[str] = set()
        for one in parsed:
            fitting = of_type(rules, one.type)
            if not fitting or one.id in seen or ring.knows(one.id):
                out.append(one)
                continue
            seen.add(one.id)
            try:
                env = as_dict(one.body)
            except wire.InvalidEnvelope as error:
                metrics.triggers.labels("read", "failed").inc()
                self._log.warning("triggers cannot read an envelope", code=error.code)
                out.append(one)
                continue
            changed, wanted = self._engine.fire(fitting, ring.name, env, self.now())
            effects += [(effect, one.id) for effect in wanted]
            out.append(one if changed is None else self._changed(ring, one, changed))
        return out, effects

    def _changed(self, ring: Ring, one: Parsed, env: dict[str, Any]) -> Parsed:
        """The enriched envelope, if it still is one; else the one that came."""
        try:
            new = parse(encode(env), ring.name, self._settings.envelope_bytes_max)
        except ApplianceError as error:
            metrics.triggers.labels("enrich", "failed").inc()
            self._log.warning("a trigger would have spoiled an envelope", code=error.code)
            return one
        metrics.triggers.labels("enrich", "done").inc()
        return new

    def _carry_out(self, effects: Sequence[tuple[Effect, str]]) -> None:
        """Each effect, and what its envelope sets off, up to a bound. Failures are counted."""
        waiting = deque(effects)
        left = self._settings.derived_max
        while waiting:
            effect, source = waiting.popleft()
            if left <= 0:
                metrics.triggers.labels(effect.action, "suppressed").inc()
                continue
            left -= 1
            outcome, began, spoiled = "done", self.now(), False
            try:
                waiting.extend(self._do(effect, source))
            except ApplianceError as error:
                # What only this envelope brought about is not held against its rule.
                outcome, spoiled = "failed", isinstance(error, Invalid | Forbidden)
                self._log.warning(
                    "a trigger failed", rule=effect.rule, action=effect.action, code=error.code
                )
            if not spoiled:
                self._engine.settle(effect.rule, outcome == "done", self.now())
            metrics.triggers.labels(effect.action, outcome).inc()
            if self._settings.event_log:
                event = "trigger.run" if outcome == "done" else "trigger.fail"
                self._log.info(
                    "courier", event=event, rule=effect.rule, action=effect.action,
                    source_id=source, ms=round(self.now() - began, 3),
                )  # fmt: skip

    def _do(self, effect: Effect, source: str) -> list[tuple[Effect, str]]:
        if effect.action == "emit":
            metrics.emitted.labels(effect.to).inc()
            return []
        if effect.action == "webhook":
            if self._sink is None:
                raise Unavailable(NO_OUTBOX)
            self._sink(effect.to, f"courier-{effect.rule}-{source}", effect.envelope)
            return []
        if not any(matches(glob, effect.to) for glob in self._settings.trigger_targets):
            raise Forbidden("courier.trigger_targets does not include that stream")
        ring = self.open(effect.to)
        parsed = [parse(encode(effect.envelope), effect.to, self._settings.envelope_bytes_max)]
        if ring.policy.full != "block":
            self._make_room(ring, parsed, len(parsed[0].body))
        elif not ring.has_room(1, len(parsed[0].body)):
            raise wire.StreamFull(details={"stream": ring.name})
        fit = self.fits.get(ring.name) or self._fit(ring)
        more: list[tuple[Effect, str]] = []
        if fit.rules:
            parsed, more = self._enrich(ring, fit.rules, parsed)
        if ring.policy.durable:
            self._put_durable(ring, parsed)
        else:
            self._put(ring, parsed)
        return more

    # -- durable streams -----------------------------------------------------------------------

    def recover(self, journal: Journal) -> None:
        """Take up what the journal remembers. Leases are void: nobody holds anything."""
        now, wall = self.now(), self._clock.now_ms()
        memory = journal.memory(wall - int(self._settings.recent_seconds * 1000))
        by_stream: dict[str, list[tuple[int, str]]] = {}
        for stream, place, id_ in memory.acked:
            by_stream.setdefault(stream, []).append((place, id_))
        for stream, those in by_stream.items():
            self._remembered(stream).recent.restore([id_ for _, id_ in those], those[-1][0] + 1)
        self.take_up(journal.rows(), memory.tries)
        for stream, body in memory.latest:
            unseen = self._latest.put(stream, body)
            self._queue.changes += [("unseen", each) for each in unseen]
        for stream, until_ms in memory.paused:
            until = None if until_ms is None else now + until_ms - wall
            self._queue.hold(self._remembered(stream), until)

    def _remembered(self, stream: str) -> Ring:
        """A stream that the journal knows. Once durable, it stays so until it is forgotten,
        whatever is declared today."""
        ring = self._queue.rings.get(stream)
        if ring is None:
            ring = self._queue.open(stream, self.now())
            ring.policy = msgspec.structs.replace(ring.policy, durable=True)
            self._fit(ring)
        return ring

    def take_up(self, rows: Sequence[Row], tries: Mapping[int, list[Any]]) -> None:
        """Envelopes that are in the journal and not in their streams."""
        now, wall = self.now(), self._clock.now_ms()
        for row in rows:
            ring = self._remembered(row.stream)
            if ring.knows(row.id):  # its producer was not answered, and sent it again
                ring.changes.append(("gone", row.number))
                continue
            item = Item(ring, row.id, row.body, 0, now - max(0, wall - row.accepted_ms))
            item.row, item.key, item.priority = row.number, row.key, row.priority
            item.attempts, item.failures, item.error = row.attempts, row.failures, row.error
            item.delivered = row.attempts
            if row.number in tries:
                item.history = [(now + at - wall, *said) for at, *said in tries[row.number]]
            if row.reason is not None:
                item.state, item.reason = DEAD, row.reason
                if row.due_ms is not None:
                    item.since = now + row.due_ms - wall
            if row.expires_ms is not None:
                item.expires = now + row.expires_ms - wall
            ring.restore(item, 0.0 if row.due_ms is None else row.due_ms - wall, now)
        if rows:
            self._log.info("durable streams recovered", envelopes=len(rows))

    def look_again(self) -> None:
        """The journal's writer died: what it had stored and told nobody is in the file. Its
        producers heard that the outcome is unknown; now it is known."""
        if self._journal is None:
            return
        rows = self._journal.rows()
        self.take_up(rows, {})
        for name in {row.stream for row in rows}:
            self._queue.deal(self._queue.rings[name], self.now())

    def flush(self) -> int:
        """Have the journal hear what happened; how many changes it was."""
        if self._journal is None:
            return 0
        changes = self._queue.changes
        taken = changes[:CHANGES_MAX]
        if not taken:
            return 0
        del changes[: len(taken)]
        try:
            return self._journal.apply(taken)
        except ApplianceError:
            changes[:0] = taken  # later, in the same order
            if len(changes) > self._fold_at:
                changes[:] = folded(changes)
                self._fold_at = max(FOLD_AT, 2 * len(changes))
            raise

    def end(self) -> None:
        """Nobody waits for room any more."""
        self._closed = True
        for signals in self._waiting.values():
            for signal in signals:
                signal.set()

    def close(self) -> None:
        """The journal hears what it has not heard yet."""
        try:
            while self.flush():
                pass
        except ApplianceError as error:
            self._log.error("the journal did not hear the last acks", code=error.code)


def check_name(stream: str) -> None:
    if not is_name(stream):
        raise Invalid(
            "to: a stream's name is printable, without `*` and without empty parts",
            details={"field": "to", "stream": stream[:100]},
            hint="for example agents/Jen/inbox",
        )

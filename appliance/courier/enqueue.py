"""Enqueuing: rate limit, capacity, triggers, journal, stream, view, dispatch; in this order.

Most envelopes take the short path: a stream in memory with capacity and without triggers.
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.change import (
    EnvelopeAppended,
    EnvelopeGone,
    JournalBatch,
    LatestDropped,
    LoggedChange,
)
from appliance.courier.envelope import ParsedEnvelope, as_dict, encode, parse
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.item import FailedAttempt, StreamItem
from appliance.courier.journal import Journal, compact
from appliance.courier.lease import DEAD
from appliance.courier.policy import is_name, matches
from appliance.courier.queue import STREAMS_MAX, Queue
from appliance.courier.rows import AckedRow, AttemptRow, EnvelopeRow, LatestRow, PausedRow
from appliance.courier.settings import CourierSettings
from appliance.courier.stream import Stream
from appliance.courier.trigger import NO_OUTBOX, Effect, TriggerEngine, TriggerRule, of_type
from appliance.courier.view import View, is_inbox
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Forbidden, Invalid, Unavailable
from appliance.kernel.log import Log
from appliance.kernel.token_bucket import TokenBucket
from appliance.kernel.wakeup import Wakeup

WAITING_MAX = 500  # producers with a token that can wait at once for capacity
BLOCK_MS = 5_000  # a producer waits this long if the overflow policy is `block`
CASCADE_MAX = 100  # trigger actions that one enqueue request can cause

WebhookSink = Callable[[str, str, dict[str, Any]], None]
"""(url, key, payload). Calls with the same key are one webhook, which is sent once."""

RETRY_SECONDS = 1.0
CHANGES_MAX = 5_000  # changes in one journal transaction
COMPACT_AT = 100_000  # pending changes above this number are compacted


class StreamContext:
    """Facts about a stream that enqueuing needs. `last_ms`: the last envelope's time."""

    __slots__ = ("bucket", "inbox", "last_ms", "rules")

    def __init__(
        self, rules: tuple[TriggerRule, ...], inbox: bool, bucket: TokenBucket | None
    ) -> None:
        self.rules = rules
        self.inbox = inbox
        self.bucket = bucket
        self.last_ms = 0


class EnqueuePipeline:
    def __init__(
        self,
        queue: Queue,
        engine: TriggerEngine,
        latest: View,
        settings: CourierSettings,
        clock: Clock,
        log: Log,
        journal: Journal | None,
        webhooks: WebhookSink | None = None,
    ) -> None:
        """Take the parts for enqueuing. `webhooks` accepts trigger webhooks durably, or raises."""
        self.contexts: dict[str, StreamContext] = {}
        self._queue = queue
        self._engine = engine
        self._latest = latest
        self._settings = settings
        self._clock = clock
        self._log = log
        self._journal = journal
        self._webhooks = webhooks
        self._waiting: dict[str, set[Wakeup]] = {}  # blocked producers by stream
        self._waits = WaitLimit(WAITING_MAX, wire.WaitLimitReached)
        self._bytes = 0  # upper bound for all streams' bytes; forget_unused() counts exactly
        self._closed = False
        self._compact_at = COMPACT_AT

    def now(self) -> float:
        return self._clock.monotonic() * 1000

    # -- streams ---------------------------------------------------------------------------

    def open(self, name: str) -> Stream:
        """Return the stream with this name, created if the settings allow that."""
        stream = self._queue.streams.get(name)
        if stream is not None:
            return stream
        check_name(name)
        settings = self._settings
        if settings.declared_only and settings.pattern_of(name) == "other":
            raise wire.NoSuchStream(
                "unknown stream, and only declared streams are allowed (courier.declared_only)",
                details={"stream": name},
            )
        if len(self._queue.streams) >= STREAMS_MAX:
            raise wire.StreamLimitReached(retry_after=RETRY_SECONDS)
        stream = self._queue.open(name, self.now())
        if stream.policy.durable and self._journal is None:
            raise Unavailable("the journal for durable streams is not open")
        self._make_context(stream)
        return stream

    def _make_context(self, stream: Stream) -> StreamContext:
        policy = stream.policy
        bucket = None
        if policy.rate:
            bucket = TokenBucket(policy.rate, policy.rate, self._clock.monotonic())
        context = StreamContext(self._engine.for_stream(stream.name), is_inbox(stream.name), bucket)
        self.contexts[stream.name] = context
        return context

    def forget_unused(self) -> None:
        """Forget the streams that the queue has forgotten, and count the bytes again."""
        for name in [name for name in self.contexts if name not in self._queue.streams]:
            del self.contexts[name]
        self._bytes = sum(stream.bytes for stream in self._queue.streams.values())

    # -- envelopes ---------------------------------------------------------------------------

    def enqueue(self, stream: Stream, parsed: Sequence[ParsedEnvelope]) -> int:
        """Enqueue in order and dispatch. Return how many were duplicates."""
        context = self.contexts.get(stream.name) or self._make_context(stream)
        size = 0
        for envelope in parsed:
            size += len(envelope.body)
        if context.bucket is not None:
            wait = context.bucket.charge(len(parsed), self._clock.monotonic())
            if wait:
                raise wire.RateExceeded(
                    details={"scope": "stream", "stream": stream.name}, retry_after=wait
                )
        self._ensure_capacity(stream, parsed, size)
        effects: list[tuple[Effect, str]] = []
        if context.rules:
            parsed, effects = self._apply_rules(stream, context.rules, parsed)
        try:
            if stream.policy.durable:
                duplicates = self._put_durable(stream, parsed)
            else:
                duplicates = self._put(stream, parsed)
        except ApplianceError:  # the producer repeats the envelope, and then the rules fire
            for rule, _ in {(effect.rule, source_id) for effect, source_id in effects}:
                self._engine.record_failure(rule, acted=False)
            raise
        if effects:
            self._run_effects(effects)
        return duplicates

    def _put(
        self, stream: Stream, parsed: Sequence[ParsedEnvelope], rows: Sequence[int] = ()
    ) -> int:
        now, put = self.now(), stream.put
        duplicates, last = 0, None
        for index, envelope in enumerate(parsed):
            item = put(envelope.id, envelope.body, now, envelope.options)
            if item is None:
                duplicates += 1
                if rows:
                    stream.changes.append(EnvelopeGone(rows[index]))
                continue
            last = envelope
            if rows:
                item.row = rows[index]
        context = self.contexts.get(stream.name) or self._make_context(stream)
        context.last_ms = self._clock.now_ms()
        if context.inbox and last is not None:
            self._update_latest(stream, last.body)
        if stream.ready_queue.available and stream.subscriptions:
            dispatch(stream, now)
        return duplicates

    def _update_latest(self, stream: Stream, body: bytes) -> None:
        unseen = self._latest.put(stream.name, body)
        if unseen and self._journal is not None:
            self._queue.changes += [LatestDropped(name) for name in unseen]

    def _put_durable(self, stream: Stream, parsed: Sequence[ParsedEnvelope]) -> int:
        """Write the journal first, with capacity reserved in the stream until it is written."""
        new: dict[str, ParsedEnvelope] = {}
        for envelope in parsed:
            if not stream.has_id(envelope.id):
                new.setdefault(envelope.id, envelope)
        fresh = list(new.values())
        if not fresh or self._journal is None:
            return self._put(stream, parsed)
        now_ms = self._journal.steady.now_ms()
        entries = [journal_entry(stream, envelope, now_ms) for envelope in fresh]
        stream.reserved += len(fresh)
        try:
            rows = self._journal.append(entries, is_inbox(stream.name))
        finally:
            stream.reserved -= len(fresh)
        return len(parsed) - len(fresh) + self._put(stream, fresh, rows)

    # -- capacity ------------------------------------------------------------------------------

    def _ensure_capacity(self, stream: Stream, parsed: Sequence[ParsedEnvelope], size: int) -> None:
        """Make sure that all envelopes fit, or raise."""
        total_max = self._settings.bytes_total_max
        self._bytes += size
        if self._bytes > total_max:
            self.forget_unused()
            if self._bytes + size > total_max:
                raise wire.MemoryFull(details={"limit": total_max}, retry_after=RETRY_SECONDS)
            self._bytes += size
        if stream.has_capacity(len(parsed), size):
            return
        parsed = [envelope for envelope in parsed if not stream.has_id(envelope.id)]
        size = sum(len(envelope.body) for envelope in parsed)
        policy = stream.policy
        if policy.overflow_policy == "drop_oldest" and stream.could_free_capacity(
            len(parsed), size
        ):
            while not stream.has_capacity(len(parsed), size) and stream.drop_oldest():
                pass
        elif policy.overflow_policy == "block" and len(parsed) <= policy.depth_max:
            self._wait_for_capacity(stream, len(parsed), size)
        if parsed and not stream.has_capacity(len(parsed), size):
            raise wire.StreamFull(
                details={"stream": stream.name, "depth": stream.depth, "limit": policy.depth_max},
                retry_after=RETRY_SECONDS,
            )

    def _wait_for_capacity(self, stream: Stream, count: int, size: int) -> None:
        wakeup = Wakeup()
        leave = self._waits.enter(wakeup.set)
        waiting = self._waiting.setdefault(stream.name, set())
        waiting.add(wakeup)
        deadline = self.now() + BLOCK_MS
        try:
            while not (stream.has_capacity(count, size) or self._closed) and is_there():
                left = deadline - self.now()
                if left <= 0 or not wakeup.wait(left / 1000):
                    return
                wakeup.clear()
        finally:
            leave()
            waiting.discard(wakeup)
            if not waiting:
                self._waiting.pop(stream.name, None)

    def notify_capacity(self, stream: Stream) -> None:
        """Wake blocked producers: an envelope has left the stream."""
        for wakeup in tuple(self._waiting.get(stream.name, ())):
            wakeup.set()

    # -- triggers ------------------------------------------------------------------------------

    def _apply_rules(
        self, stream: Stream, rules: tuple[TriggerRule, ...], parsed: Sequence[ParsedEnvelope]
    ) -> tuple[list[ParsedEnvelope], list[tuple[Effect, str]]]:
        """Return the envelopes after enrichment, and the effects to run once they are enqueued."""
        out: list[ParsedEnvelope] = []
        effects: list[tuple[Effect, str]] = []
        seen: set[str] = set()
        for envelope in parsed:
            matching = of_type(rules, envelope.type)
            if not matching or envelope.id in seen or stream.has_id(envelope.id):
                out.append(envelope)
                continue
            seen.add(envelope.id)
            try:
                env = as_dict(envelope.body)
            except wire.InvalidEnvelope as error:
                metrics.triggers.labels("read", "failed").inc()
                self._log.warning("triggers can't read an envelope", code=error.code)
                out.append(envelope)
                continue
            changed, wanted = self._engine.fire(matching, stream.name, env, self.now())
            effects += [(effect, envelope.id) for effect in wanted]
            out.append(
                envelope if changed is None else self._parse_enriched(stream, envelope, changed)
            )
        return out, effects

    def _parse_enriched(
        self, stream: Stream, envelope: ParsedEnvelope, env: dict[str, Any]
    ) -> ParsedEnvelope:
        """Return the enriched envelope if it is valid, otherwise the original."""
        try:
            new = parse(encode(env), stream.name)
        except ApplianceError as error:
            metrics.triggers.labels("enrich", "failed").inc()
            self._log.warning(
                "a trigger made an envelope invalid; it was not applied", code=error.code
            )
            return envelope
        metrics.triggers.labels("enrich", "done").inc()
        return new

    def _run_effects(self, effects: Sequence[tuple[Effect, str]]) -> None:
        """Run effects and their envelopes' effects, at most `CASCADE_MAX`. Count failures."""
        waiting = deque(effects)
        left = CASCADE_MAX
        outcomes: dict[tuple[str, str], set[str]] = {}
        while waiting:
            effect, source_id = waiting.popleft()
            if left <= 0:
                metrics.triggers.labels(effect.action, "suppressed").inc()
                continue
            left -= 1
            outcome, envelope_at_fault = "done", False
            try:
                waiting.extend(self._run_effect(effect, source_id))
            except ApplianceError as error:
                # An error that the envelope causes doesn't count as the rule's failure.
                outcome, envelope_at_fault = "failed", isinstance(error, Invalid | Forbidden)
                self._log.warning(
                    "a trigger failed", rule=effect.rule, action=effect.action, code=error.code
                )
            if not envelope_at_fault:
                self._engine.record_outcome(effect.rule, outcome == "done", self.now())
            metrics.triggers.labels(effect.action, outcome).inc()
            outcomes.setdefault((effect.rule, source_id), set()).add(outcome)
        for (rule, _), results in outcomes.items():
            if "failed" in results:
                self._engine.record_failure(rule, acted="done" in results)

    def _run_effect(self, effect: Effect, source_id: str) -> list[tuple[Effect, str]]:
        if effect.action == "emit":
            metrics.emitted.labels(effect.to).inc()
            return []
        if effect.action == "webhook":
            if self._webhooks is None:
                raise Unavailable(NO_OUTBOX)
            self._webhooks(effect.to, f"courier-{effect.rule}-{source_id}", effect.envelope)
            return []
        if not any(matches(glob, effect.to) for glob in self._settings.trigger_targets):
            raise Forbidden("courier.trigger_targets does not include that stream")
        stream = self.open(effect.to)
        parsed = [parse(encode(effect.envelope), effect.to)]
        if stream.policy.overflow_policy != "block":
            self._ensure_capacity(stream, parsed, len(parsed[0].body))
        elif not stream.has_capacity(1, len(parsed[0].body)):
            raise wire.StreamFull(details={"stream": stream.name})
        context = self.contexts.get(stream.name) or self._make_context(stream)
        more: list[tuple[Effect, str]] = []
        if context.rules:
            parsed, more = self._apply_rules(stream, context.rules, parsed)
        if stream.policy.durable:
            self._put_durable(stream, parsed)
        else:
            self._put(stream, parsed)
        return more

    # -- durable streams -----------------------------------------------------------------------

    def recover(self, journal: Journal) -> None:
        """Restore everything from the journal. Envelopes that were leased are ready again."""
        now, now_ms = self.now(), journal.steady.now_ms()
        journal.prune()
        acked: dict[str, list[AckedRow]] = {}
        for ack in sorted(journal.read_all(AckedRow), key=attrgetter("place")):
            acked.setdefault(ack.stream, []).append(ack)
        for stream, acks in acked.items():
            recent_ids = self._open_durable(stream).recent_ids
            recent_ids.restore([ack.id for ack in acks], acks[-1].place + 1)
        self._restore_rows(journal)
        for latest in sorted(journal.read_all(LatestRow), key=attrgetter("at_ms")):
            unseen = self._latest.put(latest.stream, latest.body)
            self._queue.changes += [LatestDropped(item) for item in unseen]
        for paused in journal.read_all(PausedRow):
            until = None if paused.until_ms is None else now + paused.until_ms - now_ms
            self._queue.set_paused(self._open_durable(paused.stream), until)

    def _open_durable(self, name: str) -> Stream:
        """Return a stream in the journal. The stream stays durable until forgotten, even if the
        settings no longer declare it."""
        stream = self._queue.streams.get(name)
        if stream is None:
            stream = self._queue.open(name, self.now())
            stream.policy = msgspec.structs.replace(stream.policy, durable=True)
            self._make_context(stream)
        return stream

    def _restore_rows(self, journal: Journal) -> None:
        """Put the journal's envelopes into their streams."""
        attempts: dict[int, list[AttemptRow]] = {}
        for attempt in journal.read_all(AttemptRow):
            attempts.setdefault(attempt.number, []).append(attempt)
        rows = journal.read_all(EnvelopeRow)
        now, now_ms = self.now(), journal.steady.now_ms()
        for row in rows:
            stream = self._open_durable(row.stream)
            if stream.has_id(row.id):  # the producer got no answer and repeated the envelope
                stream.changes.append(EnvelopeGone(row.number))
                continue
            item = StreamItem(stream, row.id, row.body, 0, now - max(0, now_ms - row.accepted_ms))
            item.row, item.key, item.priority = row.number, row.key, row.priority
            item.attempts, item.failures, item.error = row.attempts, row.failures, row.error
            item.delivered = row.attempts
            if row.number in attempts:
                item.history = [
                    FailedAttempt(now + old.at_ms - now_ms, old.holder, old.outcome, old.error)
                    for old in attempts[row.number]
                ]
            if row.reason is not None:
                item.state, item.reason = DEAD, row.reason
                if row.due_ms is not None:
                    item.since = now + row.due_ms - now_ms
            if row.expires_ms is not None:
                item.expires = now + row.expires_ms - now_ms
            stream.restore(item, 0.0 if row.due_ms is None else row.due_ms - now_ms, now)
        if rows:
            self._log.info("durable streams recovered", envelopes=len(rows))

    def flush(self, *, at_once: bool = False) -> int:
        """Write pending changes to the journal, at most CHANGES_MAX, and outcomes that are due, or
        all `at_once`. Returns how many."""
        if self._journal is None:
            return 0
        changes = self._queue.changes
        batch = changes[:CHANGES_MAX]
        outcomes, now = self._queue.outcomes, self.now()
        samples = outcomes.pop(now, CHANGES_MAX, at_once=at_once)
        journaled = outcomes.take_journaled(now, quiet=at_once or not batch)
        if not batch and not samples and not journaled:
            return 0
        del changes[: len(batch)]
        try:
            offset_ms = self._clock.now_ms() - now
            written = self._journal.apply(
                JournalBatch(batch, journaled, samples, outcomes.sample_rate, offset_ms)
            )
        except ApplianceError:
            outcomes.put_back(samples, journaled, now)
            changes[:0] = batch  # tried again later, in this order
            if len(changes) > self._compact_at:
                changes[:] = compact(changes)
                self._compact_at = max(COMPACT_AT, 2 * len(changes))
            raise
        logged = [change.logged for change in batch if isinstance(change, LoggedChange)]
        outcomes.add_journaled([outcome for outcome in logged if outcome is not None], now)
        return written

    def stop_waiting(self) -> None:
        """Wake all blocked producers, and block no more."""
        self._closed = True
        for signals in self._waiting.values():
            for wakeup in signals:
                wakeup.set()

    def close(self) -> None:
        """Write all pending changes to the journal."""
        try:
            while self.flush(at_once=True):
                pass
        except ApplianceError as error:
            self._log.error("the last acks were not written to the journal", code=error.code)


def journal_entry(stream: Stream, envelope: ParsedEnvelope, now_ms: int) -> EnvelopeAppended:
    """Return a record for the journal; `now_ms` on the steady clock."""
    options = envelope.options
    ttl_ms = options.ttl_ms or stream.policy.ttl_seconds * 1000
    return EnvelopeAppended(
        stream.name, envelope.id, envelope.body, options.priority, options.key, now_ms,
        now_ms + int(options.delay_ms) if options.delay_ms else None,
        now_ms + int(ttl_ms) if ttl_ms else None,
    )  # fmt: skip


def check_name(stream: str) -> None:
    if not is_name(stream):
        raise Invalid(
            "to: a stream's name must be printable, without `*` and without empty parts",
            details={"field": "to", "stream": stream[:100]},
            hint="use a name such as agents/Jen/inbox",
        )

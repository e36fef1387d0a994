"""Administers streams: statistics, inspection, pauses, redrives, purges, trigger tests."""

from collections.abc import Iterator
from typing import Any

import msgspec

from appliance.courier import wire
from appliance.courier.access import OPERATE, READ, SUBSCRIBE, is_allowed, require
from appliance.courier.envelope import meta_of
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.item import DELAYED, FOREVER, StreamItem
from appliance.courier.lease import DEAD, LEASED, READY
from appliance.courier.live_view import row_filter, row_json
from appliance.courier.service import DELIVERY_BYTES_MAX, VIEW_ROWS_MAX, Courier
from appliance.courier.stream import Stream
from appliance.kernel.auth import Principal
from appliance.kernel.clock import iso
from appliance.kernel.log import without_path
from appliance.kernel.page import take_page
from appliance.kernel.threads import in_turns, yield_to_loop

IDS_LISTED_MAX = 1_000
PURGE_BATCH = 1_000  # envelopes purged before other greenlets run
ROW_OVERHEAD_BYTES = 200  # added to each row, more than enough for the page's rest
FACTS_MAX_AGE_MS = 2_000.0
NEARLY_FULL = 0.9
FACTS = (
    "streams",
    "full",  # streams that are NEARLY_FULL
    "paused",
    "dead",  # dead letters
    "memory_envelopes",  # envelopes that a restart would lose
    "memory_parked",  # streams with such envelopes and without consumers
    "oldest_ready_seconds",
)
_encode = msgspec.json.Encoder().encode
PAGE_MAX = 1_000  # envelopes on one GET /v1/peek page


class CourierAdmin:
    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self._queue = courier.queue
        self._facts: dict[str, float] = {}
        self._facts_ms = float("-inf")

    # -- statistics -------------------------------------------------------------------

    def stats(self, who: Principal, name: str) -> wire.StreamStatsReply:
        require_visible(who, name)
        return self._stats(self._courier.require_stream(name))

    def all_stats(self, who: Principal) -> wire.AllStats:
        rows = []
        for name, stream in in_turns(sorted(self._queue.streams.items())):
            if is_visible(who, name):
                rows.append(wire.NamedStats(name, self._stats(stream)))
        return wire.AllStats(rows, self._courier.boot_id)

    def _stats(self, stream: Stream) -> wire.StreamStatsReply:
        now = self._courier.now()
        stats, counts = stream.stats, stream.counts()
        rate_in, rate_out = stats.rates(now)
        p50, p95 = stats.percentiles()
        fit = self._courier.pipeline.contexts.get(stream.name)
        return wire.StreamStatsReply(
            depth=stream.depth,
            inflight=stream.leased,
            rate_in=round(rate_in, 2),
            rate_out=round(rate_out, 2),
            lat_p50=round(p50, 3),
            lat_p95=round(p95, 3),
            last_ts=iso(fit.last_ms) if fit is not None and fit.last_ms else None,
            ready=counts["ready"],
            delayed=counts["delayed"],
            dead=counts["dead"],
            bytes=stream.bytes,
            oldest_ready_ms=round(stream.oldest_ready_ms(now), 1),
            subscribers=len(stream.subscriptions),
            credit=sum(subscription.consumer.credit for subscription in stream.subscriptions),
            paused=stream.paused,
            paused_until=self._clock_time(stream.paused_until),
            durable=stream.policy.durable,
            enqueued=stats.enqueued,
            delivered=stats.delivered,
            acked=stats.acked,
            nacked=stats.failed + stats.rejected + stats.released,
            redelivered=stats.redelivered,
            duplicates=stats.duplicates,
            dropped=stats.dropped,
            boot_id=self._courier.boot_id,
        )

    def facts(self) -> dict[str, float]:
        """Return facts for the doctor, at most FACTS_MAX_AGE_MS old."""
        now = self._courier.now()
        if now - self._facts_ms >= FACTS_MAX_AGE_MS:
            self._facts_ms = now
            self._facts = self._collect_facts(now)
        return self._facts

    def _collect_facts(self, now: float) -> dict[str, float]:
        facts = dict.fromkeys(FACTS, 0.0)
        for stream in in_turns(self._queue.streams.values()):
            policy, count = stream.policy, len(stream.items)
            facts["streams"] += 1
            facts["paused"] += stream.paused
            facts["dead"] += len(stream.dead)
            facts["full"] += (
                count >= policy.depth_max * NEARLY_FULL
                or stream.bytes >= policy.bytes_max * NEARLY_FULL
            )
            if count and not policy.durable:
                facts["memory_envelopes"] += count
                facts["memory_parked"] += not stream.subscriptions
            oldest = stream.oldest_ready_ms(now) / 1000
            facts["oldest_ready_seconds"] = max(facts["oldest_ready_seconds"], oldest)
        return facts

    # -- inspection ----------------------------------------------------------------------

    def peek(self, who: Principal, query: wire.PeekQuery) -> wire.EnvelopePage:
        stream = self._courier.find_stream(who, SUBSCRIBE, query.stream)
        limit = min(query.limit, PAGE_MAX)
        items = stream.iterate(query.state)
        if query.after is not None and all(item.id != query.after for item in items):
            raise wire.NoSuchEnvelope(
                "the envelope in `after` is no longer in the stream",
                details={"field": "after", "id": query.after, "stream": query.stream},
                hint="start again without after",
            )
        page, more = take_page(map(self._details, items), limit, DELIVERY_BYTES_MAX, _bytes)
        return wire.EnvelopePage(page, more, self._courier.boot_id)

    def envelope(self, who: Principal, query: wire.EnvelopeQuery) -> wire.EnvelopeDetails:
        stream = self._courier.find_stream(who, SUBSCRIBE, query.stream)
        item = stream.find(query.id)
        if item is None:
            raise wire.NoSuchEnvelope(details={"id": query.id, "stream": query.stream})
        return self._details(item)

    def _details(self, item: StreamItem) -> wire.EnvelopeDetails:
        waits = item.state in (DELAYED, LEASED)
        return wire.EnvelopeDetails(
            id=item.id,
            stream=item.stream.name,
            state=item.state,
            envelope=msgspec.Raw(item.body),
            enqueued_at=self._clock_time(item.at) or "",
            attempts=item.attempts,
            failures=item.failures,
            priority=item.priority,
            partition_key=item.key,
            due_at=self._clock_time(item.deadline) if waits else None,
            expires_at=None if item.expires == FOREVER else self._clock_time(item.expires),
            consumer=item.consumer.name if item.consumer is not None else None,
            reason=item.reason if item.state == DEAD else None,
            error=item.error or None,
            dead_at=self._clock_time(item.since) if item.state == DEAD else None,
            history=[
                wire.FailedDelivery(
                    self._clock_time(failed.at) or "", failed.consumer, failed.outcome, failed.error
                )
                for failed in item.history or ()
            ],
        )

    def _clock_time(self, at: float | None) -> str | None:
        """Return the wall-clock time for an instant on the queue's monotonic clock."""
        if at is None:
            return None
        return iso(int(self._courier.clock.now_ms() + at - self._courier.now()))

    # -- views ----------------------------------------------------------------------------

    def snapshot(self, who: Principal, query: wire.ViewQuery) -> wire.ViewSnapshot:
        require(who, READ, query.view)
        view = self._courier.views.get(query.view)
        if view is None:
            raise wire.NoSuchView(details={"view": query.view})
        limit = min(query.limit, VIEW_ROWS_MAX)
        wanted, after = row_filter(query.filter), query.after
        rows = view.snapshot(
            lambda key: (after is None or key > after) and wanted(key), len(view.rows)
        )
        rows.sort(key=lambda row: row[0])  # `after` is an address
        page, more = take_page(
            (wire.ViewRow(key, row_json(row)) for key, row in rows),
            limit,
            DELIVERY_BYTES_MAX,
            _bytes,
        )
        return wire.ViewSnapshot(view.name, page, more, view.version, self._courier.boot_id)

    # -- pausing ---------------------------------------------------------------------------

    def pause(self, who: Principal, command: wire.Pause) -> wire.Paused:
        stream = self._courier.open_stream(who, OPERATE, command.stream)
        now = self._courier.now()
        until = None if command.seconds is None else now + command.seconds * 1000
        self._queue.pause(stream, until, now)
        return wire.Paused(stream.name, True, self._clock_time(until), self._courier.boot_id)

    def resume(self, who: Principal, command: wire.Resume) -> wire.Paused:
        stream = self._courier.find_stream(who, OPERATE, command.stream)
        self._queue.resume(stream, self._courier.now())
        return wire.Paused(stream.name, False, None, self._courier.boot_id)

    # -- redrive and purge --------------------------------------------------------------------

    def redrive(self, who: Principal, command: wire.Selection) -> wire.SelectionResult:
        """Make matching dead letters ready again, as many as the stream has capacity for."""
        stream = self._courier.find_stream(who, OPERATE, command.stream)
        items = list(select(stream, DEAD, command))
        ids = [item.id for item in items]
        if command.dry_run or not ids:
            return self._to_result(ids, len(ids), command)
        done, now = 0, self._courier.now()
        for item in items:
            if not stream.has_capacity(1, 0):
                break
            stream.redrive(item, now)
            done += 1
        dispatch(stream, now)
        return self._to_result(ids, done, command, len(ids) - done)

    def purge(self, who: Principal, command: wire.Selection) -> wire.SelectionResult:
        """Remove matching envelopes permanently. Leased ones can't be selected."""
        stream = self._courier.find_stream(who, OPERATE, command.stream)
        states = [READY, DELAYED] if command.state is None else [command.state]
        items = [item for state in states for item in select(stream, state, command)]
        if not command.dry_run:
            items = list(self._purge_each(stream, items))
            dispatch(stream, self._courier.now())
            self._courier.pipeline.notify_capacity(stream)
        return self._to_result([item.id for item in items], len(items), command)

    def _purge_each(self, stream: Stream, items: list[StreamItem]) -> Iterator[StreamItem]:
        for index, item in enumerate(items):
            if index % PURGE_BATCH == PURGE_BATCH - 1:
                yield_to_loop()  # envelopes that are leased meanwhile stay
            if stream.purge(item):
                yield item

    def _to_result(
        self, ids: list[str], count: int, command: wire.Selection, left: int = 0
    ) -> wire.SelectionResult:
        return wire.SelectionResult(
            count, ids[:IDS_LISTED_MAX], command.dry_run, self._courier.boot_id, left
        )

    # -- triggers ---------------------------------------------------------------------------

    def rules(self, who: Principal) -> dict[str, Any]:
        """Return all rules, without their URLs' paths. The scope must cover all streams."""
        require(who, OPERATE, "*")
        engine = self._courier.engine
        rows = [
            {
                "rule": msgspec.json.decode(without_path(msgspec.json.encode(rule).decode())),
                "fired": engine.states[rule.id].fired,
                "failed": engine.states[rule.id].failed,
                "suppressed": engine.states[rule.id].suppressed,
            }
            for rule in engine.rules
        ]
        return {"rules": rows}


def select(stream: Stream, state: str, command: wire.Selection) -> Iterator[StreamItem]:
    """Yield the envelopes in one state that match a selection, in order."""
    wanted = set(command.ids)
    left = command.limit if command.limit is not None else -1
    for item in list(stream.iterate(state)):
        if left == 0:
            return
        if (wanted and item.id not in wanted) or not matches_selection(item, command):
            continue
        left -= 1
        yield item


def matches_selection(item: StreamItem, command: wire.Selection) -> bool:
    if command.reason is not None and (item.state != DEAD or item.reason != command.reason):
        return False
    if command.type is None and command.from_ is None and command.tag is None:
        return True
    meta = meta_of(item.body)
    return (
        (command.type is None or meta.type == command.type)
        and (command.from_ is None or meta.sender == command.from_)
        and (command.tag is None or command.tag in (meta.tags or ()))
    )


def _bytes(row: wire.EnvelopeDetails | wire.ViewRow) -> int:
    return len(_encode(row)) + ROW_OVERHEAD_BYTES


def is_visible(who: Principal, stream: str) -> bool:
    return any(is_allowed(who, verb, stream) for verb in ("subscribe", "enqueue", "admin"))


def require_visible(who: Principal, stream: str) -> None:
    if not is_visible(who, stream):
        require(who, SUBSCRIBE, stream)

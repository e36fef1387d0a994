"""What operators ask of streams: figures, looking inside, pausing, moving dead letters."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import msgspec

from appliance.courier import wire
from appliance.courier.access import OPERATE, READ, SUBSCRIBE, may, require
from appliance.courier.bucket import Bucket
from appliance.courier.envelope import as_dict, meta_of, parse
from appliance.courier.item import DEAD, DELAYED, FOREVER, LEASED, READY, STATES, Item
from appliance.courier.live import shown, wanting
from appliance.courier.ring import Ring
from appliance.courier.service import Courier
from appliance.courier.trigger import Verdict
from appliance.courier.view import INFLIGHT
from appliance.kernel.auth import Principal
from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.kernel.page import take_page
from appliance.kernel.threads import yield_to_loop

IDS_SHOWN_MAX = 1_000
TURN_ITEMS = 1_000  # envelopes purged before others get a turn
TURN_STREAMS = 100  # figures told before others get a turn
BESIDE_BYTES = 200  # of a page beside its rows: a share for each row is more than enough
REDRIVES_MAX = 100
PAUSE_SECONDS_MAX = 366 * 86_400.0
FACTS_MS = 2_000.0
NEARLY_FULL = 0.9
FACTS = (
    "streams",  # there are so many
    "full",  # of them hold nearly as much as they may
    "paused",
    "dead",  # dead letters
    "memory_envelopes",  # would be lost with the process
    "memory_parked",  # streams that hold such envelopes, and nobody receives from them
    "oldest_ready_seconds",
)
_encode = msgspec.json.Encoder().encode


class Redrive:
    """Dead letters on their way back, at a rate."""

    def __init__(self, ring: Ring, ids: deque[str], rate: float, now: float) -> None:
        self.ring = ring
        self.ids = ids
        self.bucket = Bucket(rate, max(1.0, rate / 10), now)


class Operator:
    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self._queue = courier.queue
        self._redrives: list[Redrive] = []
        self._leased: dict[str, tuple[int, float]] = {}  # as the view has them: try, end
        self._facts: dict[str, float] = {}
        self._looked_ms = float("-inf")

    # -- figures ----------------------------------------------------------------------

    def stats(self, who: Principal, stream: str) -> wire.StreamStats:
        require_any(who, stream)
        ring = self._queue.rings.get(stream)
        if ring is None:
            raise wire.NoSuchStream(details={"stream": stream})
        return self._stats(ring)

    def all_stats(self, who: Principal) -> wire.AllStats:
        found = []
        for place, ring in enumerate(sorted(self._queue.rings.values(), key=lambda one: one.name)):
            if place % TURN_STREAMS == TURN_STREAMS - 1:
                yield_to_loop()  # thousands of streams are no reason for anybody to wait
            if can_see(who, ring.name):
                found.append(wire.NamedStats(ring.name, self._stats(ring)))
        return wire.AllStats(found, self._courier.boot_id)

    def _stats(self, ring: Ring) -> wire.StreamStats:
        now = self._courier.now()
        tally, counts = ring.tally, ring.counts()
        rate_in, rate_out = tally.rates(now)
        p50, p95 = tally.percentiles()
        fit = self._courier.inserts.fits.get(ring.name)
        return wire.StreamStats(
            depth=ring.depth,
            inflight=ring.leased,
            rate_in=round(rate_in, 2),
            rate_out=round(rate_out, 2),
            lat_p50=round(p50, 3),
            lat_p95=round(p95, 3),
            last_ts=iso(fit.last_ms) if fit is not None and fit.last_ms else None,
            ready=counts["ready"],
            delayed=counts["delayed"],
            dead=counts["dead"],
            bytes=ring.bytes,
            oldest_ready_ms=round(self._queue.oldest_ready_ms(ring, now), 1),
            subscribers=len(ring.seats),
            credit=sum(seat.taker.credit for seat in ring.seats),
            paused=ring.paused,
            paused_until=self._wall(ring.paused_until),
            durable=ring.policy.durable,
            enqueued=tally.enqueued,
            delivered=tally.delivered,
            acked=tally.acked,
            nacked=tally.failed + tally.rejected + tally.released,
            redelivered=tally.redelivered,
            duplicates=tally.duplicates,
            dropped=tally.dropped,
            boot_id=self._courier.boot_id,
        )

    def facts(self) -> dict[str, float]:
        """For the doctor: a look at every stream, at most once in a while."""
        now = self._courier.now()
        if now - self._looked_ms >= FACTS_MS:
            self._looked_ms = now
            self._facts = self._look(now)
        return self._facts

    def _look(self, now: float) -> dict[str, float]:
        found = dict.fromkeys(FACTS, 0.0)
        for ring in self._queue.rings.values():
            policy, held = ring.policy, len(ring.items)
            found["streams"] += 1
            found["paused"] += ring.paused
            found["dead"] += len(ring.dead)
            found["full"] += (
                held >= policy.depth_max * NEARLY_FULL
                or ring.bytes >= policy.bytes_max * NEARLY_FULL
            )
            if held and not policy.durable:
                found["memory_envelopes"] += held
                found["memory_parked"] += not ring.seats
            oldest = self._queue.oldest_ready_ms(ring, now) / 1000
            found["oldest_ready_seconds"] = max(found["oldest_ready_seconds"], oldest)
        return found

    # -- looking inside ------------------------------------------------------------------

    def peek(self, who: Principal, query: wire.PeekQuery) -> wire.Listing:
        ring = self._courier.known(who, SUBSCRIBE, query.stream)
        most = min(query.limit, self._courier.settings.page_max)
        state = None if query.state is None else STATES.index(query.state)
        found: list[wire.Kept] = []
        left = self._courier.settings.delivery_bytes_max
        skipping = query.after is not None
        for item in ring.listed(state):
            if skipping:
                skipping = item.id != query.after
                continue
            kept = self._kept(item)
            left -= _bytes(kept)  # with its history, which may be larger than the envelope
            if found and (len(found) == most or left < 0):
                return wire.Listing(found, True, self._courier.boot_id)
            found.append(kept)
        if skipping:
            raise wire.NoSuchEnvelope(
                "the envelope behind which the page begins is gone",
                details={"field": "after", "id": query.after, "stream": query.stream},
                hint="begin again without after",
            )
        return wire.Listing(found, False, self._courier.boot_id)

    def one(self, who: Principal, query: wire.OneQuery) -> wire.Kept:
        ring = self._courier.known(who, SUBSCRIBE, query.stream)
        item = self._queue.find(ring, query.id)
        if item is None:
            raise wire.NoSuchEnvelope(details={"id": query.id, "stream": query.stream})
        return self._kept(item)

    def _kept(self, item: Item) -> wire.Kept:
        waits = item.state in (DELAYED, LEASED)
        return wire.Kept(
            id=item.id,
            stream=item.ring.name,
            state=STATES[item.state],
            envelope=msgspec.Raw(item.body),
            enqueued_at=self._wall(item.at) or "",
            attempts=item.attempts,
            failures=item.failures,
            priority=item.priority,
            partition_key=item.key,
            due_at=self._wall(item.deadline) if waits else None,
            expires_at=None if item.expires == FOREVER else self._wall(item.expires),
            holder=item.holder.name if item.holder is not None else None,
            reason=item.reason if item.state == DEAD else None,
            error=item.error or None,
            dead_at=self._wall(item.since) if item.state == DEAD else None,
            history=[
                wire.Try(self._wall(at) or "", holder, outcome, error)
                for at, holder, outcome, error in item.history or ()
            ],
        )

    def _wall(self, at: float | None) -> str | None:
        """An instant of the queue's clock, as people read it."""
        if at is None:
            return None
        return iso(int(self._courier.clock.now_ms() + at - self._courier.now()))

    # -- views ----------------------------------------------------------------------------

    def snapshot(self, who: Principal, query: wire.ViewQuery) -> wire.Snapshot:
        require(who, READ, query.view)
        view = self._courier.views.get(query.view)
        if view is None:
            raise wire.NoSuchView(details={"view": query.view})
        if query.view == INFLIGHT:
            self.refresh_inflight()
        most = min(query.limit, self._courier.settings.view_rows_max)
        wanted, after = wanting(query.filter), query.after
        found = view.snapshot(
            lambda key: (after is None or key > after) and wanted(key), len(view.rows)
        )
        found.sort(key=lambda row: row[0])  # so that a page continues behind an address
        page, more = take_page(
            (wire.Row(key, shown(row)) for key, row in found),
            most,
            self._courier.settings.delivery_bytes_max,
            _bytes,
        )
        return wire.Snapshot(view.name, page, more, view.watermark, self._courier.boot_id)

    def refresh_inflight(self) -> None:
        """Compare the view with the leases there are; costs nothing while nobody looks."""
        view = self._courier.views[INFLIGHT]
        there = {
            f"{item.ring.name}#{item.id}": item
            for item in self._queue.leases()[: self._courier.settings.view_rows_max]
        }
        for key in [key for key in view.rows if key not in there]:
            view.remove(key)
            self._leased.pop(key, None)
        for key, item in there.items():
            lease = (item.delivered, item.deadline)
            if self._leased.get(key) == lease:
                continue
            self._leased[key] = lease
            row = {
                "id": item.id,
                "stream": item.ring.name,
                "holder": item.holder.name,
                "attempt": item.delivered,
                "until": self._wall(item.deadline),
            }
            view.put(key, row)

    # -- pausing ---------------------------------------------------------------------------

    def pause(self, who: Principal, command: wire.Pause) -> wire.Paused:
        seconds = self._pause_seconds(command)
        ring = self._courier.ring_to(who, OPERATE, command.stream)
        now = self._courier.now()
        until = None if seconds is None else now + seconds * 1000
        self._queue.pause(ring, until, now)
        return wire.Paused(ring.name, True, self._wall(until), self._courier.boot_id)

    def _pause_seconds(self, command: wire.Pause) -> float | None:
        """How long: told as such, or as an instant; without a zone that is UTC."""
        if command.until is None:
            return command.seconds
        zone = command.until.tzinfo or UTC
        at = command.until.replace(tzinfo=zone).timestamp()
        seconds = at - self._courier.clock.now_ms() / 1000
        if command.seconds is not None or not 0 < seconds <= PAUSE_SECONDS_MAX:
            raise Invalid(
                "until: a time within the next year, and no seconds beside it",
                details={"field": "until"},
            )
        return seconds

    def resume(self, who: Principal, command: wire.Resume) -> wire.Paused:
        ring = self._courier.known(who, OPERATE, command.stream)
        self._queue.resume(ring, self._courier.now())
        return wire.Paused(ring.name, False, None, self._courier.boot_id)

    # -- moving envelopes ---------------------------------------------------------------------

    def redrive(self, who: Principal, command: wire.Selection) -> wire.Changed:
        """Dead letters that match get a new life, all at once or at a rate."""
        ring = self._courier.known(who, OPERATE, command.stream)
        ids = [item.id for item in chosen(ring, DEAD, command)]
        if command.dry_run or not ids:
            return self._changed(ids, len(ids), command)
        now = self._courier.now()
        if command.rate is not None:
            if len(self._redrives) >= REDRIVES_MAX:
                raise wire.TooManyWaiting("too many redrives are under way")
            rate = min(command.rate, self._courier.settings.redrive_rate)
            begun = Redrive(ring, deque(ids), rate, now)
            self._redrives.append(begun)
            self._queue.alarm.interrupt()
            self.tick(now)
            left = len(begun.ids)
            return self._changed(ids, len(ids) - left, command, left)
        done = self._revive(ring, deque(ids), len(ids), now)
        return self._changed(ids, done, command, len(ids) - done)

    @property
    def is_redriving(self) -> bool:
        return bool(self._redrives)

    def tick(self, now: float) -> int:
        """Redrives under way go on."""
        moved = 0
        for one in self._redrives:
            while one.ids and not one.bucket.take(1, now):
                if not self._revive(one.ring, one.ids, 1, now):
                    break
                moved += 1
        self._redrives = [one for one in self._redrives if one.ids]
        return moved

    def _revive(self, ring: Ring, ids: deque[str], most: int, now: float) -> int:
        done = 0
        while ids and done < most and ring.has_room(1, 0):
            item = ring.dead.get(ids.popleft())
            if item is not None:
                ring.redrive(item, now)
            done += 1
        self._queue.deal(ring, now)
        return done

    def purge(self, who: Principal, command: wire.Selection) -> wire.Changed:
        """Remove what matches for good; leased envelopes stay with their takers."""
        ring = self._courier.known(who, OPERATE, command.stream)
        states = [READY, DELAYED] if command.state is None else [STATES.index(command.state)]
        items = [item for state in states for item in chosen(ring, state, command)]
        if not command.dry_run:
            items = list(self._purged(ring, items))
            self._queue.deal(ring, self._courier.now())
            self._courier.inserts.room(ring)
        return self._changed([item.id for item in items], len(items), command)

    def _purged(self, ring: Ring, items: list[Item]) -> Iterator[Item]:
        for place, item in enumerate(items):
            if place % TURN_ITEMS == TURN_ITEMS - 1:
                yield_to_loop()  # some may be leased meanwhile, and those stay
            if ring.purge(item):
                yield item

    def _changed(
        self, ids: list[str], count: int, command: wire.Selection, left: int = 0
    ) -> wire.Changed:
        return wire.Changed(
            count, ids[:IDS_SHOWN_MAX], command.dry_run, self._courier.boot_id, left
        )

    # -- triggers ---------------------------------------------------------------------------

    def dry_run(self, who: Principal, command: wire.DryRun) -> list[Verdict]:
        """Which rules an insert of this envelope would fire; nothing is inserted."""
        require(who, OPERATE, command.to)
        limit = self._courier.settings.envelope_bytes_max
        parsed = parse(command.envelope, command.to, limit)
        env = as_dict(parsed.body)
        return self._courier.engine.verdicts(command.to, env, self._courier.now())

    def rules(self, who: Principal) -> list[dict[str, Any]]:
        """All of them, with the addresses of their webhooks: for who may operate all streams."""
        require(who, OPERATE, "*")
        engine = self._courier.engine
        return [
            {
                "rule": msgspec.to_builtins(rule),
                "fired": engine.states[rule.id].fired,
                "suppressed": engine.states[rule.id].suppressed,
            }
            for rule in engine.rules
        ]


def chosen(ring: Ring, state: int, command: wire.Selection) -> Iterator[Item]:
    """Envelopes in one state that a selection means, in their order."""
    wanted = set(command.ids)
    left = command.limit if command.limit is not None else -1
    for item in list(ring.listed(state)):
        if left == 0:
            return
        if (wanted and item.id not in wanted) or not fits(item, command):
            continue
        left -= 1
        yield item


def fits(item: Item, command: wire.Selection) -> bool:
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


def _bytes(row: wire.Kept | wire.Row) -> int:
    return len(_encode(row)) + BESIDE_BYTES


def can_see(who: Principal, stream: str) -> bool:
    return any(may(who, verb, stream) for verb in ("subscribe", "enqueue", "admin"))


def require_any(who: Principal, stream: str) -> None:
    if not can_see(who, stream):
        require(who, SUBSCRIBE, stream)

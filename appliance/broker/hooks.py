"""Delivers to webhooks: leases their rows, calls them, and settles what became of it.

    waiting ──lease──▶ leased ──2xx──▶ gone
       ▲                 │
       └── not taken, lease ran out, restart

A row goes when its receiver has answered 2xx and not before; it may get a message twice, under
one webhook-id. One that fails is left alone for growing pauses, and keeps no other waiting.
"""

from typing import Any

import msgspec

from appliance.broker import metrics, queries, writes
from appliance.broker.directory import HookRow
from appliance.broker.service import Broker
from appliance.broker.webhook_caller import Called, Caller
from appliance.broker.writes import Claim, HookDone, Want
from appliance.kernel import webhook_signature
from appliance.kernel.errors import Unavailable
from appliance.kernel.loop import Loop

FIRST_PAUSE_MS = 1000
FAILURES_MAX = 5  # in a row, before the receiver is left alone
LEASE_MARGIN_SECONDS = 10.0  # a call ends before its lease
DAY_MS = 86_400_000
JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class Reached:
    """What is known of one receiver: calls on their way, and whether it takes any."""

    __slots__ = ("failures", "quiet_until", "running")

    def __init__(self) -> None:
        self.failures = 0
        self.quiet_until = 0.0  # of the monotonic clock
        self.running = 0

    def room(self, now: float, most: int) -> int:
        if now < self.quiet_until:
            return 0
        # After a pause one call finds out.
        return (1 if self.failures >= FAILURES_MAX else most) - self.running


class HookDeliverer(Loop):
    """`hands` do the calls: a GreenletPool, or in tests the caller."""

    name = "broker_hooks"

    def __init__(self, broker: Broker, hands: Any) -> None:
        super().__init__(broker.clock, broker.log)
        self._broker = broker
        self._hands = hands
        self._reached: dict[str, Reached] = {}
        self._done: list[HookDone] = []
        self._turn = 0
        self._quiet_until = 0.0
        self.interval_seconds = broker.settings.deliver_seconds
        broker.dispatch.wake_hooks = self.nudge

    def run_once(self, now_ms: int) -> dict[str, int]:
        caller = self._broker.hook_caller
        counts = {"settled": 0, "called": 0}
        if caller is None or self.clock.monotonic() < self._quiet_until:
            return counts
        self._broker.check_clock()
        hooks = self._due(now_ms)
        wants = [self._want(hook, room) for hook, room in hooks]
        if not wants and not self._done:
            return counts
        counts["settled"] = len(self._done)
        try:
            claims = self._write(wants, caller.seconds_max)
        except Unavailable as error:
            # The disk is full or the file is busy: what was done stays, and waits.
            self._quiet_until = self.clock.monotonic() + (error.retry_after or 1.0)
            return {"settled": 0, "called": 0, "refused": 1}
        by_owner = {owner_of(hook): hook for hook, _ in hooks}
        for claim in claims:
            hook = by_owner[claim.owner]
            self._reach(hook).running += 1
            self._hands.spawn(self._deliver, caller, hook, claim)
        counts["called"] = len(claims)
        return counts

    def flush(self) -> None:
        """Write down what was done, and take nothing more."""
        if self._done:
            self._write([], 0.0)

    # -- one turn ------------------------------------------------------------------------

    def _due(self, now_ms: int) -> list[tuple[HookRow, int]]:
        """Webhooks for which something is ready, and how many calls of each may begin."""
        broker, free, now = self._broker, self._hands.free, self.clock.monotonic()
        most = broker.settings.webhook_each_max
        hooks = [
            hook
            for hook in broker.directory.hooks
            if hook.enabled and self._reach(hook).room(now, most) > 0
        ]
        self._forget({hook.id for hook in broker.directory.hooks})
        if not hooks or free < 1:
            return []
        ready = broker.store.read(queries.hooks_with_work, hooks, now_ms)
        self._turn += 1
        found = []
        for place in range(len(ready)):
            hook = ready[(place + self._turn) % len(ready)]
            room = min(self._reach(hook).room(now, most), free)
            if room > 0:
                found.append((hook, room))
                free -= room
        return found

    def _want(self, hook: HookRow, room: int) -> Want:
        mesh = self._broker.directory.by_id[hook.mesh_id]
        recipient = f"webhook:{hook.id}"
        return Want(owner_of(hook), mesh.id, mesh.slug, (recipient,), room, queries.LOWEST)

    def _write(self, wants: list[Want], call_seconds: float) -> list[Claim]:
        broker = self._broker
        done, self._done = self._done, []
        lease_ms = int((call_seconds + LEASE_MARGIN_SECONDS) * 1000)
        patience_ms = int(broker.settings.webhook_disable_after_days * DAY_MS)
        try:
            told = broker.store.write(writes.hook_turn, done, wants, lease_ms, patience_ms)
        except BaseException:
            self._done = done + self._done
            raise
        if told.changed:
            broker.reload()
        for hook_id, cause in told.disabled:
            metrics.hooks_disabled.labels(cause).inc()
            self.log.warning("a webhook was switched off", webhook=hook_id, cause=cause)
        return list(told.claims)

    def _reach(self, hook: HookRow) -> Reached:
        return self._reached.setdefault(hook.id, Reached())

    def _forget(self, known: set[str]) -> None:
        for hook_id in [one for one in self._reached if one not in known]:
            if not self._reached[hook_id].running:
                del self._reached[hook_id]

    # -- one call ------------------------------------------------------------------------

    def _deliver(self, caller: Caller, hook: HookRow, claim: Claim) -> None:
        reached = self._reach(hook)
        try:
            called = self._called(caller, hook, claim)
        finally:  # killed half-way nobody knows: its lease runs out, or the next start ends it
            reached.running -= 1
        delivered = called.outcome == "delivered"
        metrics.deliveries.labels("hook_taken" if delivered else "hook_failed").inc()
        asked_ms = int(self._asked(called) * 1000)
        reached.failures = 0 if delivered else reached.failures + 1
        if asked_ms or reached.failures >= FAILURES_MAX:
            over = reached.failures - FAILURES_MAX
            pause_ms = max(self._pause_ms(over), asked_ms)
            reached.quiet_until = self.clock.monotonic() + pause_ms / 1000
        self._done.append(
            HookDone(
                hook.mesh_id, hook.id, claim.owner, claim.id, claim.push.message_id,
                called.outcome, called.reason[:500],
                max(self._pause_ms(claim.attempts - 1), asked_ms),
            )
        )  # fmt: skip
        self.nudge()

    def _called(self, caller: Caller, hook: HookRow, claim: Claim) -> Called:
        now_ms = self.clock.now_ms()
        body = body_of(claim)
        try:
            headers = webhook_signature.headers(
                hook.secrets(now_ms), claim.push.message_id, now_ms // 1000, body, JSON
            )
            return caller.call(hook.url, headers, body.decode())
        except Exception as error:
            self.log.error("a webhook could not be called", error, webhook=hook.id)
            return Called("failed", f"it could not be called: {type(error).__name__}")

    def _pause_ms(self, failures: int) -> int:
        longest = int(self._broker.settings.retry_seconds_max * 1000)
        return min(FIRST_PAUSE_MS << min(max(failures, 0), 20), longest)

    def _asked(self, called: Called) -> float:
        most = self._broker.settings.webhook_retry_after_seconds_max
        return min(max(called.retry_after_seconds or 0.0, 0.0), most)


def owner_of(hook: HookRow) -> str:
    """Who leases a webhook's rows."""
    return f"hook-{hook.id}"


def body_of(claim: Claim) -> bytes:
    """The frame that a link would get."""
    return b'{"type":"push",' + _encode(claim.push)[1:]

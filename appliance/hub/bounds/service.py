"""The verbs: pause, resume, list pauses; set, remove and list ceilings."""

from collections import Counter
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from appliance.hub import ceilings, pausing
from appliance.hub.bound_records import Ceiling, ShownPause
from appliance.hub.bounds import metrics, wire, writes
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name
from appliance.hub.wire import ADMIN
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.idempotency import Reply, call_once
from appliance.kernel.pauses import PauseCause, PauseKind, StoredPause
from appliance.kernel.wakeup import Wakeup

CAUSES: tuple[PauseCause, ...] = ("operator", "ceiling", "hops")
QUEUE_MAX = 10  # events that say when to read the pauses again
CONTINUE, KEEP = "continue", "keep paused"

_changed = msgspec.json.Decoder(wire.PauseChanged).decode


class TopicAsks(Protocol):
    """Questions to people whether a topic may go on."""

    def ask(self, pause: StoredPause) -> str:
        """Ask once for each pause; return the ask's id."""

    def answer(self, ask_id: str) -> str | None:
        """Return the answer; None while nobody has answered."""

    def cancel(self, ask_id: str) -> None: ...


class Bounds:
    """One per process. `asks`: None if the role is off."""

    def __init__(self, hub: Hub, clock: Clock, asks: TopicAsks | None = None) -> None:
        self.hub = hub
        self.store = hub.store
        self._clock = clock
        self._asks = asks
        self.changed = Wakeup()  # set when a limit has paused something
        self._subscription = hub.feed.subscribe(QUEUE_MAX, _is_beginning, self._note_beginning)

    # -- pauses ------------------------------------------------------------------------

    def pause(
        self, command: wire.BeginPause, principal: Principal, key: str | None = None
    ) -> Reply:
        """Pause a name, a topic, or all agents."""
        kind, subject = self._target(command, principal)
        if command.reason is not None:
            check_name(reason=command.reason)
        until_ms = self._until_ms(command)
        by, label = principal.label or principal.name, principal.label
        identity = keyed_request(principal, "POST", "pauses", key, command)
        given = command.reason, command.seconds, by, label, until_ms
        return self._change(identity, writes.pause, kind, subject, *given)

    def resume(self, command: wire.EndPause, principal: Principal, key: str | None = None) -> Reply:
        """End a pause. After a ceiling, the name gets the day's ceiling again; after hops, the
        topic's count of hops is zero."""
        kind, subject = self._target(command, principal)
        identity = keyed_request(principal, "POST", "pauses/resume", key, command)
        reply = self._change(identity, writes.resume, kind, subject, principal.label)
        ask_id = _changed(reply.body).pause.ask_id
        if ask_id and self._asks is not None:
            self._asks.cancel(ask_id)
        return reply

    def list_pauses(self, query: wire.PausesQuery) -> wire.PauseList:
        limit = min(query.limit, wire.PAGE_MAX)
        rows = self.store.read(pausing.page, query.after, limit + 1)
        ahead_ms = self.hub.steady.ahead_ms()
        shown = [pausing.to_wire(row, ahead_ms) for row in rows[:limit]]
        has_more = len(rows) > limit
        return wire.PauseList(shown, has_more, shown[-1].id if has_more else 0)

    def _target(self, command: wire.PauseTarget, principal: Principal) -> tuple[PauseKind, str]:
        """Return a pause's kind and subject. Raises BadPause or NoSuchTopic."""
        given = (command.principal is not None, command.topic_id is not None, command.all)
        if sum(given) != 1:
            raise wire.BadPause
        if command.principal is not None:
            check_name(principal=command.principal)
            return "principal", command.principal
        if command.topic_id is not None:
            return "topic", self.hub.access.find_topic(principal, ADMIN, command.topic_id)
        return "all", ""

    def _until_ms(self, command: wire.BeginPause) -> int | None:
        """Return `until`, if that is given. Raises BadPause."""
        if command.until is None:
            return None
        until_ms = round(command.until.timestamp() * 1000)
        longest_ms = wire.PAUSE_SECONDS_MAX * 1000
        if command.seconds is not None or not 0 < until_ms - self._clock.now_ms() <= longest_ms:
            raise wire.BadPause(
                "a pause ends in the next 90 days, and has one end", details={"field": "until"}
            )
        return until_ms

    # -- ceilings ----------------------------------------------------------------------

    def set_ceiling(
        self, command: wire.SetCeiling, principal: Principal, key: str | None = None
    ) -> Reply:
        """Set what a name may use on a day; what it has used today counts."""
        check_name(name=command.name)
        if all(getattr(command, unit) is None for unit in ceilings.UNITS):
            raise wire.BadCeiling
        identity = keyed_request(principal, "POST", "ceilings", key, command)
        by = principal.label or principal.name
        return self._change(identity, writes.set_ceiling, command, by)

    def remove_ceiling(
        self, command: wire.RemoveCeiling, principal: Principal, key: str | None = None
    ) -> Reply:
        identity = keyed_request(principal, "POST", "ceilings/remove", key, command)
        return self._change(identity, writes.remove_ceiling, command.name)

    def list_ceilings(self, query: wire.CeilingsQuery) -> wire.CeilingList:
        limit = min(query.limit, wire.PAGE_MAX)
        rows = self.store.read(ceilings.page, self._day(), query.after, limit + 1)
        has_more, rows = len(rows) > limit, rows[:limit]
        return wire.CeilingList(rows, has_more, rows[-1].name if has_more else "")

    def _day(self) -> str:
        return iso(self._clock.now_ms())[:10]

    # -- what loops and the operator's messages need -------------------------------------

    def end_due(self) -> int:
        """End the pauses whose time is over; return how many."""
        ended: int = self.store.write(writes.end_due)
        self.refresh()
        return ended

    def refresh(self) -> list[StoredPause]:
        """Read the pauses and ceilings again, and return the pauses."""
        self._subscription.recover()
        pauses = self.hub.pauses.load()
        counts = Counter(pause.cause for pause in pauses)
        for cause in CAUSES:
            metrics.paused.labels(cause).set(counts[cause])
        return pauses

    def ask_people(self, pauses: list[StoredPause]) -> int:
        """Ask about topics that agents filled, and resume those that may go on. Return how many
        questions wait."""
        asks, waiting = self._asks, 0
        for pause in pauses if asks is not None else ():
            if pause.cause == "hops":
                with suppress(ApplianceError):  # the next round tries again
                    waiting += self._waits_for_answer(pause)
        return waiting

    def _waits_for_answer(self, pause: StoredPause) -> bool:
        """Ask if nobody did, and resume the topic if its answer says so."""
        assert self._asks is not None
        if pause.ask_id is None:
            self.store.write(writes.note_ask, pause.id, self._asks.ask(pause))
            metrics.asked.inc()
            return True
        answer = self._asks.answer(pause.ask_id)
        if answer == CONTINUE:
            self._change(None, writes.resume, pause.kind, pause.subject, None)
        return answer is None

    def problems(self, limit: int) -> tuple[list[ShownPause], list[Ceiling]]:
        """Return the pauses that limits began, and the ceilings that are used by 80 %."""
        ahead_ms = self.hub.steady.ahead_ms()
        rows = [row for row in self.store.read(pausing.page) if row.cause != "operator"]
        warned = self.store.read(ceilings.warned, self._day(), limit)
        return [pausing.to_wire(row, ahead_ms) for row in rows[:limit]], warned

    def _change(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self.store.write(*call_once(identity, function, *args))
        self.refresh()
        return reply

    def _note_beginning(self, _events: Any) -> bool:
        self.changed.set()
        return True


def _is_beginning(event: Any) -> bool:
    return bool(event.name == "pause.began")

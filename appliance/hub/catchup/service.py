"""The verbs: catch up, resolve and reopen topics, write handoff notes, pin messages."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from appliance.hub.access import POST, READ
from appliance.hub.ask.access import channels_of
from appliance.hub.ask.wire import ANSWER
from appliance.hub.catchup import budget, queries, wire, writes
from appliance.hub.catchup.queries import Caller, LineStyle
from appliance.hub.catchup.wire import CatchUpPart
from appliance.hub.entries.queries import visible
from appliance.hub.entries.service import permitted_name
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name
from appliance.kernel.auth import Principal
from appliance.kernel.errors import PayloadTooLarge, Unavailable, check_cursor
from appliance.kernel.idempotency import Reply, call_once


class OwnClaim(NamedTuple):
    """A claim on the worker bus. `left_seconds`: below 0 when its lease has ended."""

    task: str
    age_seconds: int
    left_seconds: int


class ClaimSource(Protocol):
    """The worker bus. `scope`: what a token needs to read claims."""

    scope: str

    def own(self, name: str, limit: int) -> Sequence[OwnClaim]:
        """Return at most `limit` claims of an agent, the first to end first."""


class CatchUps:
    """One per process. `claims`: the worker bus; None: the role is off."""

    def __init__(self, hub: Hub, claims: ClaimSource | None) -> None:
        self.hub = hub
        self.store = hub.store
        self._claims = claims
        self.resolve = partial(self._change_topic, writes.resolve)
        self.reopen = partial(self._change_topic, writes.reopen)
        self.write_handoff = partial(self._change_topic, writes.handoff)
        self.pin = partial(self._change_pin, writes.pin)
        self.unpin = partial(self._change_pin, writes.unpin)

    def catch_up(self, query: wire.CatchUpQuery, principal: Principal) -> wire.CatchUp:
        """Return what waits for a name, never longer than asked. Nothing is marked as read."""
        name = permitted_name(query.name, principal)
        check_cursor(query.since, self.hub.feed.head, self.hub.identity.epoch)
        caller = Caller(
            name, visible(principal.channels_for(READ)), principal.allows(ANSWER),
            visible(channels_of(principal)),
        )  # fmt: skip
        style = LineStyle(budget.line_bytes(query.tokens), self.hub.steady.ahead_ms())
        newest, parts = self.store.read(queries.parts, caller, query.since, style)
        parts.insert(1, self._claims_part(name, principal, style))
        return budget.fit(name, newest, parts, query.tokens)

    def _claims_part(self, name: str, principal: Principal, style: LineStyle) -> CatchUpPart:
        command, source = "agentlip bus claims", self._claims
        reason = "the worker bus is off"
        if source is not None and not principal.allows(source.scope):
            reason = f"the token lacks {source.scope}"
        elif source is not None:
            try:
                rows = source.own(name, queries.ITEMS_MAX + 1)
                return style.part("claims", rows, _claim_line, command, bound=False)
            except Unavailable:
                reason = "the worker bus can't be read"
        return CatchUpPart("claims", [], 0, command, unavailable=reason)

    def topic_state(self, topic_id: str, principal: Principal) -> wire.TopicStateShown:
        topic_id = self.hub.access.find_topic(principal, READ, topic_id)
        state: wire.TopicStateShown = self.store.read(queries.show_state, topic_id)
        return state

    def pins(self, query: wire.PinsQuery, principal: Principal) -> wire.PinList:
        channel_id = query.channel_id
        if channel_id is not None:
            channel_id = self.hub.access.find_channel(principal, READ, channel_id)
        only, limit = visible(principal.channels_for(READ)), min(query.limit, wire.PAGE_MAX)
        listed: wire.PinList = self.store.read(queries.pins, channel_id, only, limit)
        return listed

    def _change_topic(
        self,
        function: Any,
        topic_id: str,
        command: Any,
        principal: Principal,
        key: str | None = None,
    ) -> Reply:
        check_name(note=command.note)
        if len(command.note.encode("utf-8", "surrogatepass")) > wire.NOTE_BYTES_MAX:
            raise PayloadTooLarge(
                f"note has more than {wire.NOTE_BYTES_MAX} bytes", details={"field": "note"}
            )
        name = permitted_name(command.name, principal)
        topic_id = self.hub.access.find_topic(principal, POST, topic_id)
        route = f"topics/{topic_id}/{function.__name__}"
        identity = keyed_request(principal, "POST", route, key, command)
        return self._write(identity, function, topic_id, command, name, principal.label)

    def _change_pin(
        self, function: Any, message_id: str, command: wire.PinMessage, principal: Principal,
        key: str | None = None,
    ) -> Reply:  # fmt: skip
        name = permitted_name(command.name, principal)
        self.hub.access.check_message(principal, POST, message_id)
        route = f"messages/{message_id}/{function.__name__}"
        identity = keyed_request(principal, "POST", route, key, command)
        return self._write(identity, function, message_id, name, principal.label)

    def _write(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self.store.write(*call_once(identity, function, *args))
        return reply


def _claim_line(claim: OwnClaim, _style: LineStyle) -> str:
    left = claim.left_seconds
    lease = f"lease ends in {left} s" if left > 0 else f"lease ended {-left} s ago"
    return f"{claim.task}, {lease}, claimed {claim.age_seconds} s ago"

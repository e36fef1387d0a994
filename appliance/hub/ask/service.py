"""The verbs: ask, answer, cancel, wait, list."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from appliance.hub.access import POST, READ, OtherChannel
from appliance.hub.ask import links, listings, metrics, queries, states, wire, writes
from appliance.hub.ask.access import Answerer, channels_of, may_answer
from appliance.hub.ask.settings import AskSettings
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name, check_text
from appliance.hub.waiting import read_until
from appliance.hub.webhooks.queries import find as find_webhook
from appliance.hub.webhooks.queries import require as require_webhook
from appliance.kernel.auth import ADMIN, Principal, check_sender
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply, call_once
from appliance.kernel.wakeup import Wakeup

PAGE_MAX = 200  # asks in one response; a larger `limit` is clamped

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Asks:
    """One per process. Every operation returns when its effect is durable and published."""

    def __init__(self, hub: Hub, clock: Clock, settings: AskSettings | None = None) -> None:
        self.hub = hub
        self.store = hub.store
        self._clock = clock
        self.steady = hub.steady
        self.settings = settings or AskSettings()
        self.deadlines = Wakeup()  # set on new deadlines
        self.mails = Wakeup()  # set on asks that have to be mailed
        self._on_settled: list[Callable[[], None]] = []

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback`, which must neither wait nor raise, after asks were settled."""
        self._on_settled.append(callback)

    def create(
        self, command: wire.CreateAsk, principal: Principal, key: str | None = None
    ) -> Reply:
        """Create an ask. A repeated key gives the first ask, in its current state."""
        _check(command)
        check_sender(command.sender, principal.senders)
        topic_id = command.topic_id and self.hub.access.find_topic(
            principal, POST, command.topic_id
        )
        if topic_id is None and principal.channels_for(POST) is not None:
            self.hub.access.find_channel(principal, POST, writes.CHANNEL)
        identity = writes.AskIdentity(
            principal.id, principal.label, key, hashlib.sha256(_canonical(command)).hexdigest()
        )
        mail_to = self._recipients(command)
        reply: Reply = self.store.write(writes.create, command, identity, topic_id, mail_to)
        if not reply.replayed:
            metrics.created.inc()
            self.deadlines.set()
            self.mails.set()
        return reply

    def _recipients(self, command: wire.CreateAsk) -> Sequence[str]:
        """Return the recipients: without `mail_to`, everybody who may answer."""
        permitted, named = self.settings.mail_to, command.may_answer
        if command.mail_to is None:
            return [address for address in permitted if not named or address in named]
        for address in command.mail_to:
            if address not in permitted:
                raise wire.MailNotPermitted(details={"field": "mail_to"})
        return list(dict.fromkeys(command.mail_to))

    def answer(
        self, ask_id: str, command: wire.AnswerAsk, principal: Principal, key: str | None = None
    ) -> Reply:
        _check_visible(principal, self.store.read(queries.find, ask_id), wire.ANSWER)
        sender, name = _sender_of(command.sender, principal), principal.label
        who = Answerer(sender, name, name=name, channels=channels_of(principal))
        identity = keyed_request(principal, "POST", f"asks/{ask_id}/answer", key, command)
        return self.answer_as(ask_id, command.answer, who, identity)

    def answer_as(self, ask_id: str, text: str, who: Answerer, identity: Any = None) -> Reply:
        check_name(answer=text)
        check_bytes("answer", text, wire.ANSWER_BYTES_MAX)
        return self._settle(identity, writes.answer, ask_id, text, who)

    def cancel(
        self, ask_id: str, command: wire.CancelAsk, principal: Principal, key: str | None = None
    ) -> Reply:
        _check_visible(principal, self.store.read(queries.find, ask_id), POST)
        who = Answerer(_sender_of(command.sender, principal), principal.label)
        identity = keyed_request(principal, "POST", f"asks/{ask_id}/cancel", key, command)
        asker = None if principal.allows(ADMIN) else principal.id
        return self._settle(identity, writes.cancel, ask_id, asker, who)

    # -- links in mails and webhooks -------------------------------------------------------

    @cached_property
    def _link_key(self) -> bytes:
        return bytes.fromhex(self.store.write(writes.link_key))

    def link(self, ask: queries.StoredAsk, number: int) -> str:
        """Return the link for the recipient with this number."""
        return links.link_of(self._link_key, ask, number)

    def show_by_link(self, link: str) -> tuple[wire.Ask, bool]:
        """Return the ask, and whether the link may answer it. Opening a link answers nothing.
        Raises NoSuchLink."""
        ask, who = self._by_link(link)
        return queries.to_wire(ask, self.steady.ahead_ms()), may_answer(ask, who)

    def is_answerable(self, link: str) -> bool:
        """Return whether the link is valid, and may answer an ask that waits."""
        try:
            ask, who = self._by_link(link)
        except wire.NoSuchLink:
            return False
        return ask.row.state == states.WAITING and may_answer(ask, who)

    def answer_by_link(self, link: str, text: str) -> None:
        ask, who = self._by_link(link)
        self.answer_as(ask.row.id, text, who)

    def answer_secret(self, webhook_id: str) -> wire.AnswerSecret:
        """Return the secret with which a webhook's receiver makes links. Raises NoSuchWebhook."""
        webhook = self.store.read(require_webhook, webhook_id)
        key = links.webhook_key(self._link_key, webhook.id, webhook.secret)
        return wire.AnswerSecret(webhook.id, base64.b64encode(key).decode())

    def _by_link(self, link: str) -> tuple[queries.StoredAsk, Answerer]:
        """Return the ask, and the recipient or webhook for which the link was made. Raises
        NoSuchLink."""
        ask_id, name = links.parts_of(link)
        try:
            ask: queries.StoredAsk = self.store.read(queries.find, ask_id)
        except wire.NoSuchAsk:
            raise wire.NoSuchLink from None
        webhook = self.store.read(find_webhook, name)
        if webhook is None:
            address = links.recipient_of(self._link_key, ask, link)
            return ask, Answerer(address, writes.PRINCIPAL, "mail", address)
        links.check_receiver(self._link_key, webhook, ask, link, self._clock.now_ms())
        return ask, Answerer(webhook.id, webhook.id, "webhook", webhook.id)

    def show(
        self, ask_id: str, wait_seconds: float, principal: Principal, scope: str = READ
    ) -> wire.AskShown:
        """Return an ask; wait while nobody has settled it, at most `wait_seconds`. `scope`: the
        caller's right to see the ask."""
        ask: queries.StoredAsk = self.store.read(queries.find, ask_id)
        _check_visible(principal, ask, scope)
        if ask.row.state == states.WAITING and wait_seconds > 0:
            ask = self._await_answer(ask_id, wait_seconds, principal)
        return wire.AskShown(queries.to_wire(ask, self.steady.ahead_ms()))

    def list(self, query: wire.AsksQuery, principal: Principal) -> wire.AskList:
        limit = min(query.limit, PAGE_MAX)
        only = channels_of(principal) if query.mine else principal.channels_for(READ)
        page, more = self.store.read(listings.asks, query, limit, principal.label, only)
        ahead_ms = self.steady.ahead_ms()
        shown = [queries.to_wire(ask, ahead_ms) for ask in page]
        return wire.AskList(shown, more, shown[-1].id if more else "")

    def settle_due(self) -> int:
        """Settle asks whose deadline has passed; how many."""
        settled: int = self.store.write(writes.settle_due)
        self._note_settled("deadline", settled)
        return settled

    def _settle(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self.store.write(*call_once(identity, function, *args))
        if not reply.replayed:
            self._note_settled(function.__name__, 1)
        return reply

    def _note_settled(self, by: str, count: int) -> None:
        metrics.settled.labels(by).inc(count)
        for callback in self._on_settled:
            callback()

    def _await_answer(
        self, ask_id: str, wait_seconds: float, principal: Principal
    ) -> queries.StoredAsk:
        """Wake the caller only for a reply that names the ask."""

        def wants(event: Any) -> bool:
            return event.name == "message.created" and ask_id in event.data

        return read_until(
            lambda ask: ask.row.state != states.WAITING,
            lambda: self.store.read(queries.find, ask_id),
            self.hub, self.hub.feed.subscribe(1, wants),
            min(wait_seconds, wire.WAIT_SECONDS_MAX), principal,
        )  # fmt: skip


def _check_visible(principal: Principal, ask: queries.StoredAsk, scope: str = READ) -> None:
    """Raise OtherChannel, or NoSuchAsk, unless the ask's channel is one that the token may read and
    use with `scope`. A token with `scope` that may read nothing sees only its own asks."""
    only = channels_of(principal, (READ, scope))
    if only is not None and ask.row.channel_id not in only:
        raise OtherChannel(details={"scope": scope})
    is_own = ask.row.principal_id == principal.id
    if scope == POST and not (is_own or principal.allows(READ)):
        raise wire.NoSuchAsk(details={"ask_id": ask.row.id})


def _check(command: wire.CreateAsk) -> None:
    check_name(sender=command.sender, text=command.text)
    check_bytes("text", command.text, wire.TEXT_BYTES_MAX)
    for field in ("choices", "may_answer", "blocks"):
        values = getattr(command, field)
        for value in values:
            check_name(**{field: value})
        if len(set(values)) < len(values):
            raise Invalid(f"{field} has the same entry twice", details={"field": field})
    default = command.default
    if default is None:
        return
    check_text(default=default)
    check_bytes("default", default, wire.ANSWER_BYTES_MAX)
    if command.deadline_seconds is None:
        raise Invalid(
            "a default needs a deadline",
            details={"field": "default"},
            hint="send deadline_seconds too",
        )
    if command.choices and default not in command.choices:
        raise Invalid(
            "the default is not one of the choices",
            details={"field": "default", "choices": command.choices},
        )


def check_bytes(field: str, text: str, limit: int) -> None:
    if len(text.encode()) > limit:
        raise Invalid(
            f"{field} has more than {limit} bytes of UTF-8",
            details={"field": field, "limit": limit},
        )


def _sender_of(sender: str | None, principal: Principal) -> str:
    """Return a reply's sender: as given, or the token's name."""
    if sender is None:
        sender = principal.label or principal.name
        if principal.senders is not None and sender not in principal.senders:
            sender = min(principal.senders)
    check_name(sender=sender)
    check_sender(sender, principal.senders)
    return sender

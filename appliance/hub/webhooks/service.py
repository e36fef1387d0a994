"""The webhooks' operations: register, change, show and delete."""

from typing import Any

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.queries import channels_of_topics
from appliance.hub.rows import EventWebhookRow
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_text
from appliance.hub.webhooks import listings, metrics, queries, views, wire, writes
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel import webhook_signature
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock
from appliance.kernel.delivery import CallOutcome
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply, call_once
from appliance.kernel.log import Log, without_path
from appliance.kernel.registered_webhook import note_outcome, requested_secret, secrets_of
from appliance.kernel.wakeup import Wakeup
from appliance.kernel.webhook_signature import SignedRequest
from appliance.web.address import check_url

SCAN_ROWS_MAX = 20_000  # events scanned for one webhook at once
FILTERS_MAX = 100  # entries per webhook in names, channels and topics, each


class OutgoingEvent(msgspec.Struct, frozen=True):
    """One event for one webhook. `key` never changes between attempts."""

    webhook_id: str
    event_id: int
    key: str
    message_id: str
    body: str


class Webhooks:
    """One per process. Sends nothing itself: provides events and signed requests to the outbox,
    and records the outcomes."""

    def __init__(
        self, hub: Hub, settings: WebhookSettings, clock: Clock, log: Log | None = None
    ) -> None:
        self._hub = hub
        self.store = self._store = hub.store
        self._settings = settings
        self._clock = clock
        self._log = log
        self.changed: set[str] = set()  # webhook ids whose failed sends may work now
        self.work = Wakeup()  # set on new events and changed webhooks
        self.is_used = True  # False: no webhook is enabled, so new events wake nobody
        hub.feed.on_publish(lambda: self.work.set() if self.is_used else None)

    def create(
        self, command: wire.CreateWebhook, principal: Principal, key: str | None = None
    ) -> Reply:
        check_url(command.url, self._settings)
        check_text(description=command.description)
        secret = requested_secret(command.secret, False) or webhook_signature.new_secret()
        head = self._hub.feed.head
        cursor = head if command.cursor is None else min(command.cursor, head)
        identity = keyed_request(principal, "POST", "webhooks", key, command)
        command = msgspec.structs.replace(command, events=self._resolve(command.events))
        return self._mutate(identity, writes.create, command, secret, cursor)

    def change(
        self,
        webhook_id: str,
        command: wire.ChangeWebhook,
        principal: Principal,
        key: str | None = None,
    ) -> Reply:
        identity = keyed_request(principal, "PATCH", f"webhooks/{webhook_id}", key, command)
        if command.url is not None:
            check_url(command.url, self._settings)
        if command.description is not None:
            check_text(description=command.description)
        if command.cursor is not None:
            within = min(command.cursor, self._hub.feed.head)
            command = msgspec.structs.replace(command, cursor=within)
        if command.events is not None:
            command = msgspec.structs.replace(command, events=self._resolve(command.events))
        secret = requested_secret(command.secret, command.new_secret)
        reply = self._mutate(identity, writes.change, webhook_id, command, secret)
        self.changed.add(webhook_id)
        self.work.set()
        return reply

    def delete(self, webhook_id: str) -> Reply:
        return self._mutate(None, writes.delete, webhook_id)

    def show(self, webhook_id: str) -> wire.WebhookShown:
        row = self._store.read(queries.require, webhook_id)
        return wire.WebhookShown(views.to_wire(row, self._clock.now_ms()))

    def list_all(self, query: wire.WebhooksQuery) -> wire.WebhookList:
        limit = min(query.limit, writes.WEBHOOKS_MAX)
        rows, more = self._store.read(listings.webhooks, query.after, limit)
        now_ms = self._clock.now_ms()
        last = rows[-1].id if rows else query.after
        rows = [row._replace(url=without_path(row.url)) for row in rows]
        return wire.WebhookList([views.to_wire(row, now_ms) for row in rows], more, last)

    # -- for the outbox ------------------------------------------------------------------

    @property
    def head(self) -> int:
        return self._hub.feed.head

    def next_events(
        self, row: EventWebhookRow, until: int, limit: int
    ) -> tuple[list[OutgoingEvent], int]:
        """Return a webhook's next events, and the cursor after them."""
        events, cursor = self._store.read(queries.pending, row, until, limit, SCAN_ROWS_MAX)
        return [self._outgoing(row, number, envelope) for number, envelope in events], cursor

    def _outgoing(self, row: EventWebhookRow, number: int, envelope: bytes) -> OutgoingEvent:
        """Return an outgoing event. The key includes the epoch, because event ids repeat if the
        log was lost."""
        message_id = f"{self._epoch_of(number)}:{number}"
        return OutgoingEvent(
            webhook_id=row.id,
            event_id=number,
            key=f"wh_{row.id}_{row.generation}_{message_id}",
            message_id=message_id,
            body=envelope.decode(),
        )

    def _epoch_of(self, number: int) -> str:
        """Return the epoch in which an event was written: so the id stays after a restore, and
        receivers recognize duplicates."""
        identity = self._hub.identity
        written = (epoch for first, epoch in reversed(identity.epochs) if number >= first)
        return next(written, identity.epoch)

    def ready(self, webhook_id: str, message_id: str, body: bytes) -> SignedRequest | str:
        """Return one attempt's request, signed now; or `deleted` or `disabled`."""
        row = self._store.read(queries.find, webhook_id)
        if row is None:
            return "deleted"
        if not row.enabled:
            return "disabled"
        now_ms = self._clock.now_ms()
        secrets = secrets_of(row, now_ms)
        headers = webhook_signature.headers(secrets, message_id, now_ms // 1000, body)
        return SignedRequest(row.url, headers)

    def record_outcome(self, webhook_id: str, outcome: CallOutcome) -> None:
        """Record an attempt: `delivered`, `failed` or `gone`. Writes only if something changes.
        A receiver that is gone or has failed for too long disables its webhook."""
        row = self._store.read(queries.find, webhook_id)
        if row is None or not note_outcome(row, outcome, self._clock.now_ms())[0]:
            return
        cause = self._store.write(writes.note_attempt, webhook_id, outcome)
        if cause is not None:
            metrics.disabled.labels(cause).inc()
            if self._log is not None:
                self._log.warning("a webhook was disabled", webhook=webhook_id, cause=cause)

    def _resolve(self, wanted: wire.EventSelection) -> wire.EventSelection:
        """Return the selection with channel ids for names. Raises if a channel or topic is
        missing."""
        for name in wanted.__struct_fields__:
            if len(getattr(wanted, name)) > FILTERS_MAX:
                raise Invalid(
                    f"events.{name} has more than {FILTERS_MAX} entries",
                    details={"field": f"events.{name}"},
                    hint=f"leave the list empty for all, or name at most {FILTERS_MAX}",
                )
        filters = self._hub.filter_for(wanted.channels, [])
        if filters.unresolved:
            raise hub_wire.NoSuchChannel(details={"channels": sorted(filters.unresolved)})
        topics = list(dict.fromkeys(wanted.topics))
        existing = self._store.read(channels_of_topics, topics) if topics else {}
        unknown = [topic_id for topic_id in topics if topic_id not in existing]
        if unknown:
            raise hub_wire.NoSuchTopic(details={"topics": unknown})
        names = list(dict.fromkeys(wanted.names))
        return wire.EventSelection(names, sorted(filters.channels), topics)

    def _mutate(self, identity: Any, function: Any, *args: Any) -> Reply:
        reply: Reply = self._store.write(*call_once(identity, function, *args))
        self.is_used = True
        self.work.set()
        return reply

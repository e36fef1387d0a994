"""Administration of sends: redrive, drop, prune. Ids are never released."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from appliance.kernel import idempotency
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import KeyedRequest, Reply
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import listings, metrics, queries, states, wire, writes
from appliance.outbox.rows import SendRow
from appliance.outbox.service import ADMIN_ACTOR, META_BYTES_MAX, STEP_ROWS_MAX, Outbox
from appliance.outbox.views import meta_of
from appliance.outbox.writes import Successor

Verb = Literal["redrive", "drop", "prune"]
Command = wire.Redrive | wire.Drop | wire.Prune

_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode
REDRIVE_MAX = 1000  # sends changed by one redrive with a filter


class OutboxAdmin:
    """Each operation is one transaction."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._verbs: dict[Verb, Callable[[Any, KeyedRequest | None], Reply]] = {
            "redrive": self._redrive,
            "drop": self._drop,
            "prune": self._prune,
        }

    def execute(self, verb: Verb, command: Command, by: str, key: str | None) -> Reply:
        """The reply to a request. A repeated idempotency key gets the first reply again, even if
        the sends have changed since; raises KeyReused for another request with that key."""
        key_identity = None
        if key is not None and not (isinstance(command, wire.Redrive) and command.dry_run):
            digest = hashlib.sha256(_canonical(command)).hexdigest()
            key_identity = by, "POST", f"outbox/{verb}", key, digest
            reply = self._outbox.store.read(idempotency.stored_reply, key_identity)
            if reply is not None:
                return reply
        return self._verbs[verb](command, key_identity)

    def _write(self, identity: KeyedRequest | None, function: Any, *args: Any) -> Reply:
        call = (writes.as_reply, function, *args)
        keyed_call = call if identity is None else (idempotency.reply_once, identity, *call)
        reply: Reply = self._outbox.store.write(*keyed_call)
        return reply

    def _redrive(self, command: wire.Redrive, identity: KeyedRequest | None) -> Reply:
        _check(command)
        rows = self._select(command)
        plan = [(row, None if command.lost else self._successor(command, row)) for row in rows]
        if command.dry_run:
            redriven = [
                wire.Redriven(row.id, row.client_message_id, None, command.new_client_id)
                for row, _ in plan
            ]
            return Reply(
                200, _encode(wire.RedriveResult(redriven, True, self._has_more(command, rows)))
            )
        chosen = tuple((row.id, successor) for row, successor in plan)
        reply = self._write(
            identity,
            writes.redrive,
            *(chosen, ADMIN_ACTOR, self._has_more(command, rows)),
        )
        if reply.replayed:  # another request with this key finished first
            return reply
        metrics.redrives.inc(len(chosen))
        self._outbox.gauge.accepted(
            sum(row.status == states.DEAD for row in rows), sum(len(row.payload) for row in rows)
        )
        self._outbox.wake({row.route for row in rows})
        return reply

    def _drop(self, command: wire.Drop, identity: KeyedRequest | None) -> Reply:
        return self._write(identity, writes.drop, command.id, ADMIN_ACTOR)

    def _prune(self, command: wire.Prune, identity: KeyedRequest | None) -> Reply:
        if not command.confirm:
            raise Invalid(
                "prune drops payloads permanently; confirm is required",
                details={"field": "confirm"},
                hint="agentlip outbox prune --confirm",
            )
        before_ms = self._outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        limit = STEP_ROWS_MAX
        args = (command.dead, before_ms, ADMIN_ACTOR, limit)
        return self._write(identity, writes.prune, *args)

    def _has_more(self, command: wire.Redrive, rows: list[SendRow]) -> bool:
        limit = min(command.limit, REDRIVE_MAX)
        return command.id is None and len(rows) >= limit

    def _select(self, command: wire.Redrive) -> list[SendRow]:
        outbox = self._outbox
        if command.id is not None:
            return [outbox.store.read(queries.require, command.id)]
        filters = outbox.filters(command.mesh, command.to)
        before = None
        if command.older_than_seconds is not None:
            before = outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        limit = min(command.limit, REDRIVE_MAX)
        # Without a payload a send can be redriven only with a new message.
        with_payload = command.patch is None or command.patch.message is UNSET
        return outbox.store.read(
            listings.redrivable,
            command.status or states.DEAD,
            filters,
            queries.LOST if command.lost else command.error_contains,
            before,
            with_payload,
            limit,
        )

    def _successor(self, command: wire.Redrive, row: SendRow) -> Successor:
        writes.check_retirable(row)
        new_id = command.new_client_id or self._outbox.new_id()
        patch = command.patch
        if patch is None:
            return Successor(new_id)
        target = self._outbox.targets.get(row.target)
        if target is not None and target.internal_only:
            raise wire.WrongState(
                "the send of a webhook can't be changed, because it is signed",
                details={"id": row.id, "target": row.target},
                hint="agentlip outbox redrive ID --auto",
            )
        body = bytes(row.payload) if patch.message is UNSET else patch.message.encode()
        if patch.message is UNSET and row.payload_dropped_at is not None:
            raise wire.PayloadGone(details={"id": row.id})
        meta: Any = meta_of(row) if patch.meta is UNSET else patch.meta
        text = _encode(meta).decode() if meta else None
        self._outbox.check_size("message", len(body), self._outbox.settings.message_bytes_max)
        self._outbox.check_size("meta", len(text or ""), META_BYTES_MAX)
        self._outbox.check_for_target(row.target, body, meta)
        digest = fingerprint(
            row.destination_kind,
            row.destination_ref,
            body,
            reply_to_id=row.reply_to_id,
            priority=row.priority,
            meta=meta,
        )
        return Successor(new_id, digest, body, text, patched=True)


def _check(command: wire.Redrive) -> None:
    """Raises Invalid unless there is one id or a filter, and one way to get the new id. Lost sends
    keep their ids."""
    if command.lost:
        others = (command.id, command.new_client_id, command.patch, command.status)
        if command.auto or command.error_contains or any(other is not None for other in others):
            raise Invalid(
                "lost sends are sent again as they were; only mesh, to and older_than_seconds"
                " select some of them",
                details={"field": "lost"},
                hint="agentlip outbox redrive --lost --dry-run",
            )
        return
    if command.auto == (command.new_client_id is not None):
        raise Invalid(
            "give either new_client_id or auto",
            details={"field": "auto"},
            hint="agentlip outbox redrive ID --auto",
        )
    filtering = (command.status, command.mesh, command.to, command.error_contains)
    by_filter = any(value is not None for value in (*filtering, command.older_than_seconds))
    if (command.id is not None) == by_filter:
        raise Invalid(
            "give either an id or a filter",
            details={"field": "id"},
            hint="agentlip outbox redrive --failed --auto --dry-run",
        )
    if by_filter and command.new_client_id is not None:
        raise Invalid(
            "new_client_id needs an id: several sends can't share one",
            details={"field": "new_client_id"},
        )

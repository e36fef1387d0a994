"""What an operator does with sends: requeue, drop, prune. Ids are never released by it."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET

from appliance.kernel import idempotency
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Once, Reply
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import listings, metrics, queries, states, wire, writes
from appliance.outbox.columns import Row
from appliance.outbox.service import OPERATOR, Outbox, is_inside_only
from appliance.outbox.views import meta_of
from appliance.outbox.writes import Successor

Verb = Literal["requeue", "drop", "prune"]
Command = wire.Requeue | wire.Drop | wire.Prune
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode


class Operator:
    """Everything in one transaction each."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._verbs: dict[Verb, Callable[[Any, str, Once | None], Reply]] = {
            "requeue": self._requeue,
            "drop": self._drop,
            "prune": self._prune,
        }

    def answer(self, verb: Verb, command: Command, by: str, key: str | None) -> Reply:
        """A verb as it is answered over HTTP. Under a key that was answered before the same again,
        whatever has become of the sends; raises KeyReused for another request under it."""
        identity = None
        if key is not None and not (isinstance(command, wire.Requeue) and command.dry_run):
            digest = hashlib.sha256(_canonical(command)).hexdigest()
            identity = by, "POST", f"outbox/{verb}", key, digest
            known = self._outbox.store.read(idempotency.known, identity)
            if known is not None:
                return known
        return self._verbs[verb](command, by, identity)

    def requeue(self, command: wire.Requeue, by: str) -> wire.RequeueResult:
        return _decoded(self._requeue(command, by), wire.RequeueResult)

    def drop(self, any_id: str, by: str) -> wire.Dropped:
        return _decoded(self._drop(wire.Drop(any_id), by), wire.Dropped)

    def prune(self, command: wire.Prune, by: str) -> wire.Pruned:
        return _decoded(self._prune(command, by), wire.Pruned)

    def _write(self, identity: Once | None, function: Any, *args: Any) -> Reply:
        given = (writes.answered, function, *args)
        whole = given if identity is None else (idempotency.once, identity, *given)
        reply: Reply = self._outbox.store.write(*whole)
        return reply

    def _requeue(self, command: wire.Requeue, by: str, identity: Once | None = None) -> Reply:
        _check(command)
        rows = self._chosen(command)
        plan = [(row, self._successor(command, row)) for row in rows]
        if command.dry_run:
            told = [
                wire.Requeued(row.id, row.client_message_id, None, command.new_client_id)
                for row, _ in plan
            ]
            return Reply(200, _encode(wire.RequeueResult(told, True, self._more(command, rows))))
        chosen = tuple((row.id, successor) for row, successor in plan)
        reply = self._write(identity, writes.requeue, chosen, OPERATOR, self._more(command, rows))
        if reply.replayed:  # another was quicker
            return reply
        metrics.requeues.inc(len(chosen))
        self._outbox.gauge.accepted(
            sum(row.status == states.DEAD for row in rows), sum(len(row.payload) for row in rows)
        )
        for route in {row.route for row in rows}:
            self._outbox.nudge(route)
        return reply

    def _drop(self, command: wire.Drop, by: str, identity: Once | None = None) -> Reply:
        return self._write(identity, writes.drop, command.id, OPERATOR)

    def _prune(self, command: wire.Prune, by: str, identity: Once | None = None) -> Reply:
        if not command.confirm:
            raise Invalid(
                "pruning drops payloads for good",
                details={"field": "confirm"},
                hint="agentlip outbox prune --confirm",
            )
        before_ms = self._outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        most = self._outbox.settings.sweep_rows_max
        return self._write(identity, writes.prune, command.dead, before_ms, OPERATOR, most)

    def _more(self, command: wire.Requeue, rows: list[Row]) -> bool:
        limit = min(command.limit, self._outbox.settings.requeue_max)
        return command.id is None and len(rows) >= limit

    def _chosen(self, command: wire.Requeue) -> list[Row]:
        outbox = self._outbox
        if command.id is not None:
            row = outbox.store.read(queries.find, command.id)
            if row is None:
                raise wire.NoSuchSend(details={"id": command.id})
            return [row]
        older = command.older_than_seconds
        filters = outbox.filters(command.mesh, command.to)
        before = None if older is None else outbox.clock.now_ms() - int(older * 1000)
        limit = min(command.limit, outbox.settings.requeue_max)
        # What has no payload any more can only be sent again with another one.
        kept = command.patch is None or command.patch.message is UNSET
        return outbox.store.read(
            listings.requeuable,
            command.status or states.DEAD,
            filters,
            command.error_contains,
            before,
            kept,
            limit,
        )

    def _successor(self, command: wire.Requeue, row: Row) -> Successor:
        if row.status not in states.RETIRABLE:
            raise wire.WrongState(
                f"a send that is {row.status} can't be requeued",
                details={"id": row.id, "status": row.status, "superseded_by": row.superseded_by},
            )
        new_id = command.new_client_id or self._outbox.new_id()
        patch = command.patch
        if patch is None:
            return Successor(new_id)
        if is_inside_only(self._outbox.targets.get(row.target)):
            raise wire.WrongState(
                "a webhook's send can't be changed: its receiver trusts our signature",
                details={"id": row.id, "target": row.target},
                hint="requeue it as it is",
            )
        body = bytes(row.payload) if patch.message is UNSET else patch.message.encode()
        if patch.message is UNSET and row.payload_dropped_at is not None:
            raise wire.PayloadGone(details={"id": row.id})
        meta: Any = meta_of(row) if patch.meta is UNSET else patch.meta
        text = _encode(meta).decode() if meta else None
        self._outbox.check_size("message", len(body), self._outbox.settings.message_bytes_max)
        self._outbox.check_size("meta", len(text or ""), self._outbox.settings.meta_bytes_max)
        self._outbox.check_by(row.target, body, meta)
        digest = fingerprint(
            row.destination_kind,
            row.destination_ref,
            body,
            reply_to_id=row.reply_to_id,
            priority=row.priority,
            meta=meta,
        )
        return Successor(new_id, digest, body, text, patched=True)


def _decoded(reply: Reply, kind: type[T]) -> T:
    return msgspec.json.decode(reply.body, type=kind)


def _check(command: wire.Requeue) -> None:
    """One id or a filter; one way to a new id."""
    if command.auto == (command.new_client_id is not None):
        raise Invalid(
            "give either new_client_id or auto",
            details={"field": "auto"},
            hint="agentlip outbox requeue ID --auto",
        )
    filtering = (command.status, command.mesh, command.to, command.error_contains)
    by_filter = any(one is not None for one in (*filtering, command.older_than_seconds))
    if (command.id is not None) == by_filter:
        raise Invalid(
            "give either an id or a filter",
            details={"field": "id"},
            hint="agentlip outbox requeue --failed --auto --dry-run",
        )
    if by_filter and command.new_client_id is not None:
        raise Invalid("many sends can't have one id", details={"field": "new_client_id"})

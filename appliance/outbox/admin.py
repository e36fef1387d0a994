"""Administers sends: redrive, drop, prune. Ids are never released."""

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET

from appliance.kernel import idempotency
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.idempotency import Reply
from appliance.mesh.fingerprint import fingerprint
from appliance.outbox import listings, metrics, queries, states, wire, writes
from appliance.outbox.rows import SendRow
from appliance.outbox.service import META_BYTES_MAX, STEP_ROWS_MAX, Outbox
from appliance.outbox.views import meta_of
from appliance.outbox.writes import Successor

_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode
REDRIVE_MAX = 1000  # sends changed by one redrive with a filter


class OutboxAdmin:
    """Each operation is one transaction."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def redrive(self, command: wire.Redrive, who: Principal, key: str | None = None) -> Reply:
        """Redrive sends. A repeated idempotency key gets the first reply again, even if the
        sends have changed since; raises KeyReused for another request with that key."""
        _check(command)
        store, identity = self._outbox.store, None
        if key is not None and not command.dry_run:
            digest = hashlib.sha256(_canonical(command)).hexdigest()
            identity = who.id, "POST", "outbox/redrive", key, digest
            stored = store.read(idempotency.stored_reply, identity)
            if stored is not None:
                return stored
        rows, more = self._select(command)
        plan = [(row, None if command.lost else self._successor(command, row)) for row in rows]
        if command.dry_run:
            redriven = [
                wire.Redriven(row.id, row.client_message_id, None, command.new_client_id)
                for row, _ in plan
            ]
            return Reply(200, _encode(wire.RedriveResult(redriven, True, more)))
        chosen = tuple((row.id, successor) for row, successor in plan)
        given = idempotency.call_once(identity, writes.redrive, chosen, more)
        reply: Reply = store.write(*given)
        if reply.replayed:  # another request with this key finished first
            return reply
        metrics.redrives.inc(len(chosen))
        self._outbox.gauge.add(
            sum(row.status == states.DEAD for row in rows), sum(len(row.payload) for row in rows)
        )
        self._outbox.delivery_work.set()
        return reply

    def drop(self, command: wire.Drop) -> wire.DropResult:
        return self._outbox.store.write(writes.drop, command.id)

    def prune(self, command: wire.Prune) -> wire.Pruned:
        if not command.confirm:
            raise Invalid(
                "prune drops payloads permanently; confirm is required",
                details={"field": "confirm"},
                hint="agentlip outbox prune --confirm",
            )
        before_ms = self._outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        return self._outbox.store.write(writes.prune, command.dead, before_ms, STEP_ROWS_MAX)

    def pause(self, command: wire.Pause) -> wire.PausedRoutes:
        """Pause a route. Raises NoSuchTarget if it does not begin with a target's name."""
        targets = self._outbox.targets
        if command.route.partition(":")[0] not in targets:
            hint = f"one of {', '.join(sorted(targets))}, or a send's route: agentlip outbox list"
            raise wire.NoSuchTarget(details={"field": "route"}, hint=hint)
        self._outbox.pauses.pause(command.route, command.seconds)
        return wire.PausedRoutes(self._outbox.pauses.list())

    def resume(self, command: wire.Resume) -> wire.PausedRoutes:
        self._outbox.pauses.resume(command.route)
        self._outbox.delivery_work.set()
        return wire.PausedRoutes(self._outbox.pauses.list())

    def _select(self, command: wire.Redrive) -> tuple[list[SendRow], bool]:
        """Return the sends, and whether others may match the filter too."""
        outbox = self._outbox
        if command.id is not None:
            return [outbox.store.read(queries.require, command.id)], False
        filters = outbox.filters(command.mesh, command.to)
        before = None
        if command.older_than_seconds is not None:
            before = outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        limit = min(command.limit, REDRIVE_MAX)
        # Without a payload a send can be redriven only with a new message.
        with_payload = command.patch is None or command.patch.message is UNSET
        rows = outbox.store.read(
            listings.redrivable,
            command.status or states.DEAD,
            filters,
            queries.LOST if command.lost else command.error_contains,
            before,
            with_payload,
            limit,
        )
        return rows, len(rows) >= limit

    def _successor(self, command: wire.Redrive, row: SendRow) -> Successor:
        writes.check_retirable(row)
        new_id = command.new_client_id or self._outbox.new_id()
        patch = command.patch
        if patch is None:
            return Successor(new_id)
        target = self._outbox.targets.get(row.target)
        if target is not None and target.internal_only:
            raise wire.WrongState(
                "a webhook's send can't be changed, because it is signed",
                details={"id": row.id, "target": row.target},
                hint=f"agentlip outbox redrive {row.id} --auto",
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
    """Raise Invalid unless there is one id or a filter, and one way to get the new id. Lost
    sends keep their ids."""
    if command.lost:
        others = (command.id, command.new_client_id, command.patch, command.status)
        if command.auto or command.error_contains or any(other is not None for other in others):
            raise Invalid(
                "lost sends are sent again unchanged; only mesh, to and older_than_seconds "
                "select some of them",
                details={"field": "lost"},
                hint="agentlip outbox redrive --lost --dry-run",
            )
        return
    filtering = (command.status, command.mesh, command.to, command.error_contains)
    by_filter = any(value is not None for value in (*filtering, command.older_than_seconds))
    has_new_id = command.new_client_id is not None
    if (
        (command.id is not None) == by_filter
        or command.auto == has_new_id
        or (by_filter and has_new_id)  # several sends can't share one
    ):
        raise Invalid(
            "give an id or a filter, and auto; or an id and its new_client_id",
            details={"field": "auto"},
            hint="agentlip outbox redrive --failed --auto --dry-run",
        )

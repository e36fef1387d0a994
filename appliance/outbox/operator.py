"""What an operator does with sends: requeue, drop, prune. Ids are never released by it."""

from typing import Any

import msgspec
from msgspec import UNSET

from appliance.kernel.errors import Invalid
from appliance.kernel.fingerprint import fingerprint
from appliance.outbox import metrics, queries, states, wire, writes
from appliance.outbox.columns import Row
from appliance.outbox.service import Outbox, is_inside_only, meta_of, shown
from appliance.outbox.writes import Successor

_encode = msgspec.json.Encoder().encode


class Operator:
    """Everything in one transaction each."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def requeue(self, command: wire.Requeue, by: str) -> wire.RequeueResult:
        _check(command)
        rows = self._chosen(command)
        plan = [(row, self._successor(command, row)) for row in rows]
        if command.dry_run:
            told = [
                wire.Requeued(row.id, row.client_message_id, None, command.new_client_id)
                for row, _ in plan
            ]
            return wire.RequeueResult(told, True, self._more(command, rows))
        store = self._outbox.store
        done = store.write(
            writes.requeue, tuple((row.id, successor) for row, successor in plan), by
        )
        metrics.requeues.inc(len(done))
        self._outbox.gauge.accepted(
            sum(row.status == states.DEAD for row in rows), sum(len(row.payload) for row in rows)
        )
        for route in {row.route for row in rows}:
            self._outbox.nudge(route)
        return wire.RequeueResult(done, False, self._more(command, rows))

    def drop(self, any_id: str, by: str) -> wire.Dropped:
        return wire.Dropped(shown(self._outbox.store.write(writes.drop, any_id, by)))

    def prune(self, command: wire.Prune, by: str) -> wire.Pruned:
        if not command.confirm:
            raise Invalid(
                "pruning drops payloads for good",
                details={"field": "confirm"},
                hint="agentlip outbox prune --confirm",
            )
        before_ms = self._outbox.clock.now_ms() - int(command.older_than_seconds * 1000)
        most = self._outbox.settings.sweep_rows_max
        pruned = self._outbox.store.write(writes.prune, command.dead, before_ms, by, most)
        return wire.Pruned(pruned, more=pruned >= most)

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
            queries.requeuable,
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

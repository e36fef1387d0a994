"""Tracks which members are connected, and whose deliveries should be claimed next.

All state is in memory; the delivery rows are authoritative. Rows are claimed only for connections
with free prefetch, so a member that acks nothing delays nobody.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from appliance.broker import metrics, wire
from appliance.broker.log_writes import DeliveryAck
from appliance.broker.member_connection import MemberConnection
from appliance.broker.writes import Claim, DeliveriesCommitted, Demand
from appliance.kernel.errors import Conflict
from appliance.kernel.wakeup import Wakeup

REPLACED, CONNECTED, REVOKED = 4003, 4004, 4401
CLAIM_MAX = 64  # rows claimed for one connection before the next one's turn
LINKS_MAX = 1_000  # member connections, including the local ones
PRESENCE_CONNECTIONS_MAX = 200  # in larger meshes peer_join and peer_leave are not sent
RANK_MAX = {"idle": 2, "working": 0, "dnd": 0}


class AlreadyConnected(Conflict):
    """The mesh prefers the connection that came first; closed with 4004."""

    code = "MEMBER_ALREADY_CONNECTED"
    default_message = "member_already_connected"
    default_hint = "end the other connection, or set the mesh's concurrency to prefer_newest"


class MemberRunsElsewhere(AlreadyConnected):
    """A copy of a running member is refused, whatever the mesh prefers; closed with 4004."""

    code = "MEMBER_RUNS_ELSEWHERE"
    default_message = "the member is connected from another machine or workspace"
    default_hint = (
        "stop one of the two appliances (agentlipd down), or stop this one and make "
        "a new key for it: agentlip identity remint --yes"
    )


class Dispatch:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self._by_recipient: dict[tuple[str, str], list[MemberConnection]] = {}
        self._by_owner: dict[str, MemberConnection] = {}
        self._with_demand: dict[MemberConnection, None] = {}
        self._acks: list[DeliveryAck] = []
        self.numbers = count(1)  # of connections
        self.work = Wakeup()  # set on new acks, and on deliveries for connections
        self.changed_webhooks: set[str] = set()  # their failed sends may work now
        self.webhook_work = Wakeup()  # set on webhook deliveries, and on webhook changes

    def __len__(self) -> int:
        return len(self._by_owner)

    def connections(self) -> list[MemberConnection]:
        return list(self._by_owner.values())

    def connections_of(self, mesh_id: str, pubkey: str) -> list[MemberConnection]:
        indexed = self._by_recipient.get((mesh_id, pubkey), ())
        return [connection for connection in indexed if connection.pubkey == pubkey]

    def in_mesh(self, mesh_id: str) -> list[MemberConnection]:
        return [
            connection for connection in self._by_owner.values() if connection.mesh.id == mesh_id
        ]

    # -- connecting and disconnecting ---------------------------------------------------------

    def attach(self, connection: MemberConnection) -> None:
        """Apply the mesh's policy for several connections from one member, then register this
        one."""
        if len(self._by_owner) >= LINKS_MAX:
            raise wire.TooManyLinks(details={"limit": LINKS_MAX})
        others = self.connections_of(connection.mesh.id, connection.pubkey)
        policy = connection.mesh.concurrency
        if others and policy == "prefer_oldest":
            raise AlreadyConnected(details={"policy": policy})
        if policy == "prefer_newest":
            for other in others:
                other.close(REPLACED, "replaced_by_newer_connection")
        self._by_owner[connection.owner] = connection
        self._add_to_index(connection)
        metrics.links.labels(connection.kind).inc()
        if not others:
            self._broadcast_presence("peer_join", connection)
        self.mark_ready(connection)

    def detach(self, connection: MemberConnection) -> list[int]:
        """Return the deliveries that the connection has not acked; the caller releases them."""
        if self._by_owner.pop(connection.owner, None) is None:
            return []
        self._remove_from_index(connection)
        self._with_demand.pop(connection, None)
        metrics.links.labels(connection.kind).dec()
        if not self.connections_of(connection.mesh.id, connection.pubkey):
            self._broadcast_presence("peer_leave", connection)
        delivery_ids = list(connection.unacked.values())
        connection.unacked.clear()
        return delivery_ids

    def change_recipients(self, connection: MemberConnection, recipients: tuple[str, ...]) -> None:
        if recipients != connection.recipients:
            self._remove_from_index(connection)
            connection.recipients = recipients
            self._add_to_index(connection)
            self.mark_ready(connection)

    def set_status(self, connection: MemberConnection, status: str) -> None:
        """Set the status. `idle` receives everything, `working` and `dnd` only messages with
        priority `now`."""
        connection.rank_max = RANK_MAX[status]
        self.mark_ready(connection)

    def broadcast(self, mesh_id: str, event: dict[str, Any]) -> None:
        """Send an event to every connection in that mesh."""
        for connection in self.in_mesh(mesh_id):
            connection.send_event(event)

    # -- deliveries ----------------------------------------------------------------------------

    def on_commit(self, items: Iterable[DeliveriesCommitted]) -> None:
        """Mark the connections that may receive the new deliveries."""
        for item in items:
            for recipient in item.recipients:
                if recipient.startswith("webhook:"):
                    self.webhook_work.set()
                for connection in self._by_recipient.get((item.mesh_id, recipient), ()):
                    self._with_demand[connection] = None
        if self._with_demand:
            self.work.set()

    def mark_ready(self, connection: MemberConnection) -> None:
        self._with_demand[connection] = None
        self.work.set()

    def mark_all_ready(self) -> None:
        for connection in self._by_owner.values():
            self._with_demand[connection] = None
        if self._with_demand:
            self.work.set()

    def wake_all(self) -> None:
        """Wake all: deliveries may have been committed without a call to `on_commit`."""
        self.mark_all_ready()
        self.webhook_work.set()

    def ack(self, connection: MemberConnection, message_ids: Iterable[str]) -> int:
        """Queue acks for the next batch; return how many were about the connection's deliveries."""
        acked = 0
        for message_id in message_ids:
            delivery_id = connection.unacked.pop(message_id, None)
            if delivery_id is not None:
                acked += 1
                self._acks.append(DeliveryAck(connection.owner, delivery_id, message_id))
        if connection.was_full:
            self._with_demand[connection] = None
        if acked:
            self.work.set()
        return acked

    def next_batch(self, rows_max: int) -> tuple[list[DeliveryAck], list[Demand]]:
        """Take the pending writes. A connection without free prefetch is marked again by its next
        ack."""
        acks, self._acks = self._acks[:rows_max], self._acks[rows_max:]
        demands: list[Demand] = []
        for connection in list(self._with_demand):
            rows = min(connection.free, CLAIM_MAX, rows_max)
            if rows_max <= 0:
                break
            del self._with_demand[connection]
            connection.was_full = rows <= 0
            if rows > 0:
                rows_max -= rows
                demands.append(
                    Demand(
                        connection.owner,
                        connection.mesh.id,
                        connection.mesh.slug,
                        connection.recipients,
                        rows,
                        connection.rank_max,
                    )
                )
        return acks, demands

    def put_back(self, acks: Sequence[DeliveryAck], demands: Sequence[Demand]) -> None:
        """Put a batch that could not be written into the next one."""
        self._acks = [*acks, *self._acks]
        for demand in demands:
            connection = self._by_owner.get(demand.owner)
            if connection is not None:
                self._with_demand[connection] = None

    def assign(
        self, demands: Sequence[Demand], claims: Sequence[Claim]
    ) -> list[tuple[str, list[int]]]:
        """Push leased deliveries; return (owner, deliveries) for connections that have ended."""
        by_owner: dict[str, list[Claim]] = {}
        for claim in claims:
            by_owner.setdefault(claim.owner, []).append(claim)
        orphaned = []
        for demand in demands:
            assigned = by_owner.get(demand.owner, [])
            connection = self._by_owner.get(demand.owner)
            if connection is None:
                orphaned.append((demand.owner, [claim.id for claim in assigned]))
                continue
            if len(assigned) >= demand.rows_max:
                self._with_demand[connection] = None
            if assigned:
                connection.unacked |= {claim.push.message_id: claim.id for claim in assigned}
                connection.push(assigned)
        return orphaned

    def expire(self, rows: Iterable[tuple[str, str]]) -> None:
        """Take back leases that have expired; return (owner, message) for each."""
        for owner, message_id in rows:
            if connection := self._by_owner.get(owner):
                connection.unacked.pop(message_id, None)

    @property
    def has_work(self) -> bool:
        return bool(self._acks or self._with_demand)

    def _add_to_index(self, connection: MemberConnection) -> None:
        for recipient in connection.recipients:
            self._by_recipient.setdefault((connection.mesh.id, recipient), []).append(connection)

    def _remove_from_index(self, connection: MemberConnection) -> None:
        for recipient in connection.recipients:
            key = (connection.mesh.id, recipient)
            others = [link for link in self._by_recipient.get(key, ()) if link is not connection]
            if others:
                self._by_recipient[key] = others
            else:
                self._by_recipient.pop(key, None)

    def _broadcast_presence(self, name: str, connection: MemberConnection) -> None:
        peers = self.in_mesh(connection.mesh.id)
        if len(peers) > PRESENCE_CONNECTIONS_MAX:
            return
        event = {"type": "event", "event": name, "mesh": connection.mesh.slug,
                 "member": connection.pubkey}  # fmt: skip
        for peer in peers:
            if peer.pubkey != connection.pubkey:
                peer.send_event(event)

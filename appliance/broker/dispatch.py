"""Who is connected, what each of them holds, and who may have something to be delivered.

Lives in memory only; the delivery rows are the truth. A receiver holds at most its window, and
work is claimed for those that have room, so one that takes nothing costs nobody else anything.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from appliance.broker import metrics, wire
from appliance.broker.directory import MeshRow
from appliance.broker.writes import Ack, Claim, Told, Want
from appliance.kernel.errors import Conflict

REPLACED, CONNECTED, REVOKED = 4003, 4004, 4401
SLICE = 64  # rows claimed for one receiver before the next one's turn
LATE_MAX = 1000  # deliveries remembered after their lease, for an ack that comes late
EVENT_LINKS_MAX = 200  # more links of one mesh: joins and leaves are not told to all


class AlreadyConnected(Conflict):
    """The mesh prefers the connection that came first; closed with 4004."""

    code = "MEMBER_ALREADY_CONNECTED"
    sentence = "member_already_connected"
    advice = "end the other connection, or have the mesh prefer the newest"


class Receiver:
    """One connection of a member.

    take    gets what was leased for it; must not wait
    say     gets events of the mesh; must not wait
    close   has to end the connection, with a code
    """

    def __init__(
        self,
        number: int,
        kind: str,
        mesh: MeshRow,
        pubkey: str,
        recipients: tuple[str, ...],
        window: int,
        take: Callable[[list[Claim]], None],
        say: Callable[[dict[str, Any]], None],
        close: Callable[[int, str], None],
    ) -> None:
        self.owner = f"{kind}-{number}"
        self.kind = kind
        self.mesh = mesh
        self.pubkey = pubkey
        self.recipients = recipients
        self.window = window
        self.take = take
        self.say = say
        self.close = close
        self.rank_max = 2
        self.held: dict[str, int] = {}
        self.more = False
        self._late: OrderedDict[str, int] = OrderedDict()

    @property
    def room(self) -> int:
        return self.window - len(self.held)

    def hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._late.pop(claim.push.message_id, None)
            self.held[claim.push.message_id] = claim.id

    def let_go(self, message_id: str) -> int | None:
        """The delivery that an ack is about, in time or late; None: not ours."""
        held = self.held.pop(message_id, None)
        return self._late.pop(message_id, None) if held is None else held

    def expire(self, delivery_ids: set[int]) -> None:
        for message_id, id_ in list(self.held.items()):
            if id_ in delivery_ids:
                del self.held[message_id]
                self._late[message_id] = id_
        while len(self._late) > LATE_MAX:
            self._late.popitem(last=False)


class Dispatch:
    """Used on the event loop only."""

    def __init__(self, links_max: int) -> None:
        self._links_max = links_max
        self._by_recipient: dict[tuple[str, str], list[Receiver]] = {}
        self._by_owner: dict[str, Receiver] = {}
        self._hungry: dict[Receiver, None] = {}
        self._acks: list[Ack] = []
        self._last = 0
        self.wake: Callable[[], None] = lambda: None
        self.wake_hooks: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._by_owner)

    def connected(self, mesh_id: str, pubkey: str) -> list[Receiver]:
        found = self._by_recipient.get((mesh_id, pubkey), ())
        return [one for one in found if one.pubkey == pubkey]

    def of_mesh(self, mesh_id: str) -> list[Receiver]:
        return [one for one in self._by_owner.values() if one.mesh.id == mesh_id]

    def everybody(self) -> list[Receiver]:
        return list(self._by_owner.values())

    # -- coming and going --------------------------------------------------------------------

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def attach(self, receiver: Receiver) -> None:
        """Applies the mesh's policy for two connections of one member, then serves this one."""
        if len(self._by_owner) >= self._links_max:
            raise wire.TooManyLinks(details={"limit": self._links_max})
        others = self.connected(receiver.mesh.id, receiver.pubkey)
        policy = receiver.mesh.concurrency
        if others and policy == "prefer_oldest":
            raise AlreadyConnected(details={"policy": policy})
        if policy == "prefer_newest":
            for other in others:
                other.close(REPLACED, "replaced_by_newer_connection")
        self._by_owner[receiver.owner] = receiver
        self._enlist(receiver)
        metrics.links.labels(receiver.kind).inc()
        if not others:
            self._tell_of_peer("peer_join", receiver)
        self.feed(receiver)

    def detach(self, receiver: Receiver) -> list[int]:
        """The deliveries it held, which somebody has to release."""
        if self._by_owner.pop(receiver.owner, None) is None:
            return []
        self._delist(receiver)
        self._hungry.pop(receiver, None)
        metrics.links.labels(receiver.kind).dec()
        if not self.connected(receiver.mesh.id, receiver.pubkey):
            self._tell_of_peer("peer_leave", receiver)
        held = list(receiver.held.values())
        receiver.held.clear()
        return held

    def change_recipients(self, receiver: Receiver, recipients: tuple[str, ...]) -> None:
        if recipients != receiver.recipients:
            self._delist(receiver)
            receiver.recipients = recipients
            self._enlist(receiver)
            self.feed(receiver)

    def tell(self, mesh_id: str, event: dict[str, Any]) -> None:
        """An event to everybody connected to that mesh."""
        for receiver in self.of_mesh(mesh_id):
            receiver.say(event)

    # -- work ----------------------------------------------------------------------------------

    def told(self, items: Iterable[Told]) -> None:
        """Called with what was committed: whoever is connected may have something to get."""
        for item in items:
            for recipient in item.recipients:
                if recipient.startswith("webhook:"):
                    self.wake_hooks()
                for receiver in self._by_recipient.get((item.mesh_id, recipient), ()):
                    self._hungry[receiver] = None
        if self._hungry:
            self.wake()

    def feed(self, receiver: Receiver) -> None:
        self._hungry[receiver] = None
        self.wake()

    def feed_all(self) -> None:
        for receiver in self._by_owner.values():
            self._hungry[receiver] = None
        if self._hungry:
            self.wake()

    def look_again(self) -> None:
        """Something may have been committed that nobody was told of."""
        self.feed_all()
        self.wake_hooks()

    def ack(self, receiver: Receiver, message_ids: Iterable[str]) -> int:
        """Notes acks to be written with the next turn; how many were known."""
        known = 0
        for message_id in message_ids:
            id_ = receiver.let_go(message_id)
            if id_ is not None:
                known += 1
                self._acks.append(Ack(receiver.owner, id_, message_id))
        if receiver.more:
            self._hungry[receiver] = None
        if known:
            self.wake()
        return known

    def next_turn(self, rows_max: int) -> tuple[list[Ack], list[Want]]:
        """What to write now. Receivers that got less than they have room for stay away."""
        acks, self._acks = self._acks[:rows_max], self._acks[rows_max:]
        wants: list[Want] = []
        for receiver in list(self._hungry):
            room = min(receiver.room, SLICE, rows_max)
            if rows_max <= 0:
                break
            del self._hungry[receiver]
            receiver.more = room <= 0
            if room > 0:
                rows_max -= room
                wants.append(
                    Want(
                        receiver.owner,
                        receiver.mesh.id,
                        receiver.mesh.slug,
                        receiver.recipients,
                        room,
                        receiver.rank_max,
                    )
                )
        return acks, wants

    def give_back(self, acks: Sequence[Ack], wants: Sequence[Want]) -> None:
        """The turn could not be written: all of it is still to be done."""
        self._acks = [*acks, *self._acks]
        for want in wants:
            receiver = self._by_owner.get(want.owner)
            if receiver is not None:
                self._hungry[receiver] = None

    def deal(self, wants: Sequence[Want], claims: Sequence[Claim]) -> list[tuple[str, list[int]]]:
        """Hands out what was leased; (owner, deliveries) of receivers that have gone meanwhile."""
        by_owner: dict[str, list[Claim]] = {}
        for claim in claims:
            by_owner.setdefault(claim.owner, []).append(claim)
        lost = []
        for want in wants:
            mine = by_owner.get(want.owner, [])
            receiver = self._by_owner.get(want.owner)
            if receiver is None:
                lost.append((want.owner, [claim.id for claim in mine]))
                continue
            if len(mine) >= want.room:
                self._hungry[receiver] = None
            if mine:
                receiver.hold(mine)
                receiver.take(mine)
        return lost

    def expire(self, rows: Sequence[tuple[int, str]]) -> None:
        by_owner: dict[str, set[int]] = {}
        for id_, owner in rows:
            by_owner.setdefault(owner, set()).add(id_)
        for owner, ids in by_owner.items():
            receiver = self._by_owner.get(owner)
            if receiver is not None:
                receiver.expire(ids)

    @property
    def has_work(self) -> bool:
        return bool(self._acks or self._hungry)

    def _enlist(self, receiver: Receiver) -> None:
        for recipient in receiver.recipients:
            self._by_recipient.setdefault((receiver.mesh.id, recipient), []).append(receiver)

    def _delist(self, receiver: Receiver) -> None:
        for recipient in receiver.recipients:
            place = (receiver.mesh.id, recipient)
            left = [one for one in self._by_recipient.get(place, ()) if one is not receiver]
            if left:
                self._by_recipient[place] = left
            else:
                self._by_recipient.pop(place, None)

    def _tell_of_peer(self, name: str, receiver: Receiver) -> None:
        links = self.of_mesh(receiver.mesh.id)
        if len(links) > EVENT_LINKS_MAX:
            return
        event = {"type": "event", "event": name, "mesh": receiver.mesh.slug,
                 "member": receiver.pubkey}  # fmt: skip
        for other in links:
            if other.pubkey != receiver.pubkey:
                other.say(event)

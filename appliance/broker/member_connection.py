"""One connection of a member to the broker: what it may claim, and what it has not acked yet.

`member_socket.py` has the connection of a member elsewhere, `local_connection.py` that of the
inbox in this process. Both register a MemberConnection with the Dispatch.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from appliance.broker.rows import MeshRow
from appliance.broker.writes import Claim
from appliance.mesh.instance import MemberInstance

EXPIRED_MAX = 1000  # deliveries remembered after their lease, so that a late ack still counts


class MemberConnection:
    """Used on the event loop only. None of the callbacks may wait.

    push        is called with deliveries that were leased for this connection
    send_event  is called with events of the mesh
    close       is called with a code and a reason, and must end the connection
    instance    where the member runs, if it says so; `since_ms`: when it connected
    """

    def __init__(
        self,
        number: int,
        kind: str,
        mesh: MeshRow,
        pubkey: str,
        recipients: tuple[str, ...],
        prefetch: int,
        push: Callable[[list[Claim]], None],
        send_event: Callable[[dict[str, Any]], None],
        close: Callable[[int, str], None],
        instance: MemberInstance | None = None,
        since_ms: int = 0,
    ) -> None:
        self.owner = f"{kind}-{number}"
        self.kind = kind
        self.mesh = mesh
        self.pubkey = pubkey
        self.recipients = recipients
        self.prefetch = prefetch
        self.push = push
        self.send_event = send_event
        self.close = close
        self.instance = instance
        self.since_ms = since_ms
        self.refused: MemberInstance | None = None  # a copy that tried to connect
        self.rank_max = 2
        self.unacked: dict[str, int] = {}
        self.was_full = False
        self._expired: OrderedDict[str, int] = OrderedDict()

    @property
    def free(self) -> int:
        """How many more deliveries may be claimed for this connection."""
        return self.prefetch - len(self.unacked)

    def add(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._expired.pop(claim.push.message_id, None)
            self.unacked[claim.push.message_id] = claim.id

    def remove(self, message_id: str) -> int | None:
        """The id of the delivery of that message, even if its lease has expired; None: there is
        no such delivery on this connection."""
        delivery_id = self.unacked.pop(message_id, None)
        return self._expired.pop(message_id, None) if delivery_id is None else delivery_id

    def expire(self, delivery_ids: set[int]) -> None:
        for message_id, delivery_id in list(self.unacked.items()):
            if delivery_id in delivery_ids:
                del self.unacked[message_id]
                self._expired[message_id] = delivery_id
        while len(self._expired) > EXPIRED_MAX:
            self._expired.popitem(last=False)

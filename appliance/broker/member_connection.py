"""Keeps one member's connection to the broker: claimable and unacked deliveries.

`member_socket.py` connects a member elsewhere, `local_connection.py` the inbox in this process.
Both register a MemberConnection with the Dispatch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from appliance.broker.rows import MeshRow
from appliance.broker.writes import Claim
from appliance.mesh.instance import MemberInstance


@dataclass(eq=False)
class MemberConnection:
    """Used on the event loop only. Callbacks must not wait.

    prefetch    the maximum of unacked deliveries
    push        is called with deliveries that were leased for this connection
    send_event  is called with events of the mesh
    close       is called with a code and a reason, and must end the connection
    instance    where the member runs, if known; `since_ms`: when it connected
    refused     a copy that tried to connect
    unacked     message → delivery
    """

    owner: str
    kind: str
    mesh: MeshRow
    pubkey: str
    recipients: tuple[str, ...]
    prefetch: int
    push: Callable[[list[Claim]], None]
    send_event: Callable[[dict[str, Any]], None]
    close: Callable[[int, str], None]
    instance: MemberInstance | None
    since_ms: int
    refused: MemberInstance | None = None
    rank_max: int = 2
    unacked: dict[str, int] = field(default_factory=dict)
    was_full: bool = False

    @property
    def free(self) -> int:
        """Return how many more deliveries may be claimed for this connection."""
        return self.prefetch - len(self.unacked)

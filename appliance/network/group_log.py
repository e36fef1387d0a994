"""Signs and verifies a group's membership log: a hash chain whose rows the relay signs. Pure.

    hash       SHA-256, hexadecimal, over the canonical JSON for
               {"groupId", "number", "agent", "action", "by", "timestamp", "previous"}
    signature  by the relay's own key, over `agentlip-network-group-v1`, a newline, and the hash

A member keeps the hash of the newest row that it has seen. A relay that drops, changes or reorders
earlier rows can't show a log that continues this hash.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import canonical
from appliance.network.keys import AgentKey, AgentPublicKey

GroupAction = Literal[
    "invited", "joined", "declined", "left", "removed", "ownership-transferred", "dissolved"
]
CONTEXT = b"agentlip-network-group-v1\n"


class GroupLogRefused(Invalid):
    code = "GROUP_LOG_REFUSED"
    default_message = "the relay's log for this group does not continue the log seen before"
    default_hint = "ask the members; to accept the relay's log: agentlip network group trust GROUP"


class GroupChange(Struct, frozen=True):
    """A membership change by the agent `by`. `previous`: the hash in the row before."""

    number: int
    agent: str
    action: GroupAction
    by: str
    timestamp: str
    previous: str
    hash: str = ""
    signature: str = ""


def change_hash(group_id: str, change: GroupChange) -> str:
    fields = {
        "groupId": group_id, "number": change.number, "agent": change.agent,
        "action": change.action, "by": change.by, "timestamp": change.timestamp,
        "previous": change.previous,
    }  # fmt: skip
    return hashlib.sha256(canonical(fields)).hexdigest()


def sign_change(key: AgentKey, digest: str) -> str:
    return key.sign(CONTEXT + digest.encode())


def is_change_signed(key: AgentPublicKey, change: GroupChange) -> bool:
    return key.is_signed(CONTEXT + change.hash.encode(), change.signature)


def verify_changes(
    group_id: str, changes: Iterable[GroupChange], head: str, key: AgentPublicKey
) -> str:
    """Return the hash of the newest row. `head`: the hash before the first one. Raises
    GroupLogRefused."""
    for change in changes:
        is_next = change.previous == head and change.hash == change_hash(group_id, change)
        if not is_next or not is_change_signed(key, change):
            raise GroupLogRefused(details={"group": group_id, "number": change.number})
        head = change.hash
    return head

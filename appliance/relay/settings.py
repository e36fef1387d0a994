"""Defines [relay]: this relay's deviations."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

RelayOption = Literal[
    "private-directory", "agent-keys", "loopback-endpoints", "slow-heartbeats", "v1", "ask"
]


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[relay]: the relay of the agent network, which `roles.relay` switches on."""

    options: tuple[RelayOption, ...] = ()
    """deviations: "private-directory" hides agents from all but their contacts, "agent-keys" lets
    admins sign with their agents' keys, "loopback-endpoints" allows endpoints on this machine,
    "slow-heartbeats" shows agents as online for an hour after a heartbeat instead of ten minutes,
    "v1" serves protocol version 1 for 30 days, "ask" asks each admin about each agent that waits
    (needs the role `ask`)"""
    approvals: Annotated[int, Meta(ge=1, le=20)] = 1  # how many admins have to approve an agent

"""[relay]: what this relay does differently."""

from typing import Literal

import msgspec

RelayOption = Literal["private-directory", "agent-keys", "loopback-endpoints", "v1"]


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[relay]: the relay of the agent network, which `roles.relay` switches on."""

    options: tuple[RelayOption, ...] = ()
    """what this relay does differently: "private-directory" hides agents from all but their
    contacts, "agent-keys" lets admins sign with the keys of their agents, "loopback-endpoints"
    allows endpoints on this machine, "v1" serves version 1 of the protocol for 30 days"""

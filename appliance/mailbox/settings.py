"""Defines the [network] settings for the automatic work by the appliance's agents."""

import msgspec


class NetworkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[network]: network agents below `.agentlip/network`, which `roles.network` runs."""

    auto_approve: bool = False  # accept every request for contact, without a person
    receipts: bool = False  # confirm to senders that a message was stored

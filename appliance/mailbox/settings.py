"""Defines the [network] settings for the automatic work by the appliance's agents."""

from typing import Annotated

import msgspec
from msgspec import Meta


class NetworkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[network]: network agents below `.agentlip/network`, which `roles.network` runs."""

    auto_approve: bool = False  # accept every request for contact, without a person
    receipts: bool = False  # confirm to senders that a message was stored
    heartbeat_seconds: Annotated[float, Meta(ge=60, le=1800)] = 300.0
    """seconds between two heartbeats of an agent; longer than 300 needs a relay with the option
    `slow-heartbeats`"""
    queue_max: Annotated[int, Meta(ge=1, le=1000)] = 100  # messages that wait for each recipient

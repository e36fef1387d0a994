"""Defines the request and response structs for the agents' endpoint."""

from typing import Any

from msgspec import Struct


class EnvelopeToAgent(Struct, frozen=True, rename="camel"):
    """An envelope. Fields may have any value here, because the recipient is checked before the
    remaining fields. `appliance/network/envelope.py` checks all fields, including the ones
    without a name here."""

    recipient: Any = None
    sender: Any = None
    version: Any = None
    type: Any = None
    message_id: Any = None
    timestamp: Any = None
    payload: Any = None
    signature: Any = None


class EnvelopeReceived(Struct, frozen=True):
    """The response to an envelope. `duplicate`: the message was stored before."""

    duplicate: bool
    ok: bool = True

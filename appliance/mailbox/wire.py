"""Request and reply of the endpoint of agents."""

from typing import Any

from msgspec import Struct


class EnvelopeToAgent(Struct, frozen=True, rename="camel"):
    """Fields may have any value here, because the recipient is checked before the others.
    `appliance/network/envelope.py` checks them, and fields that have no name here."""

    recipient: Any = None
    sender: Any = None
    version: Any = None
    type: Any = None
    message_id: Any = None
    timestamp: Any = None
    payload: Any = None
    signature: Any = None


class EnvelopeReceived(Struct, frozen=True):
    """`duplicate`: the message was stored before."""

    duplicate: bool
    ok: bool = True

"""The way to an address that was judged: a name is resolved once, every address it has must be
allowed, and the connection goes to one of those. A second look at the name might differ."""

import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from appliance.outbox.brokerhttp import Unreachable
from appliance.web.address import AddressRules, check_address

ADDRESSES_MAX = 4  # of one name that are tried
T = TypeVar("T")

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a host, the first to be tried first; raises OSError."""


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def judged(resolver: Resolve, host: str, port: int, rules: AddressRules) -> Sequence[str]:
    """Raises Unreachable, or BadWebhookUrl when any address is not allowed."""
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError):
        raise Unreachable("the receiver's name can't be resolved") from None
    if not addresses:
        raise Unreachable("the receiver's name has no address")
    for address in addresses:
        check_address(address, rules)
    return addresses


def first_to_answer(addresses: Sequence[str], connect: Callable[[str], T]) -> T:
    """What `connect` gives for the first address that takes a connection; raises OSError."""
    trouble: OSError = ConnectionRefusedError()
    for address in addresses[:ADDRESSES_MAX]:
        try:
            return connect(address)
        except OSError as error:
            trouble = error
    raise trouble

"""Connects only to addresses that were checked, which protects against DNS rebinding.

A name is resolved once, each address must be allowed, and the connection goes to one address. A
second lookup could return more.
"""

import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from appliance.kernel.unreachable import NotConnected, Unreachable
from appliance.web.address import AddressRules, check_address

ADDRESSES_MAX = 4  # addresses to try per name
T = TypeVar("T")

Resolve = Callable[[str, int], Sequence[str]]
"""Returns a host's addresses in the order to try them; raises OSError."""


def resolve(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def resolve_allowed(resolver: Resolve, host: str, port: int, rules: AddressRules) -> Sequence[str]:
    """Return all of the host's addresses. Raises Unreachable, or BadWebhookUrl if any is not
    allowed."""
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError):
        raise Unreachable("the receiver's name can't be resolved") from None
    if not addresses:
        raise Unreachable("the receiver's name has no address")
    for address in addresses:
        check_address(address, rules)
    return addresses


def open_socket(
    host: str, port: int, rules: AddressRules, seconds: float, resolver: Resolve = resolve
) -> socket.socket:
    """Connect to the host at an allowed address, each wait limited. Raises OSError, Unreachable
    and BadWebhookUrl."""
    return connect_first(
        resolve_allowed(resolver, host, port, rules),
        lambda address: socket.create_connection((address, port), seconds),
    )


def connect_first(addresses: Sequence[str], connect: Callable[[str], T]) -> T:
    """Return what `connect` returns for the first address that accepts a connection. Raises
    OSError, or NotConnected if it does."""
    last_error: Exception = ConnectionRefusedError()
    for address in addresses[:ADDRESSES_MAX]:
        try:
            return connect(address)
        except (OSError, NotConnected) as error:
            last_error = error
    raise last_error

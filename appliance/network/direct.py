"""Direct addresses: where contacts reach an agent inside its LAN, signed with the agent's key.

An address is only another way to the endpoint: port, name, certificate and encryption stay. So a
relay that shows a wrong one can only delay messages.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Invalid
from appliance.network.keys import AgentKey, AgentPublicKey

ADDRESSES_MAX = 2  # each can cost a message two seconds
SECONDS_MAX = 2.0  # for a message by a direct address; then the endpoint's public one follows
AUTO = "auto"
_ELSEWHERE = ("192.0.2.1", 9)  # an address for documentation; nothing is sent there


class BadDirectAddress(Invalid):
    code = "BAD_DIRECT_ADDRESS"
    default_message = "a direct address is an IP address in a private network"
    default_hint = "agentlip network direct 192.168.1.5 # or without an address: this machine's"


class DirectAddresses(Struct, frozen=True):
    """`signature`: over name and addresses, by the agent's key."""

    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=45)], ...], Meta(max_length=ADDRESSES_MAX)
    ]
    signature: Annotated[str, Meta(max_length=100)]

    def is_signed(self, name: str, key: AgentPublicKey) -> bool:
        return key.is_signed(_signed_text(name, self.addresses), self.signature)


def announce(name: str, addresses: Sequence[str], key: AgentKey) -> DirectAddresses | None:
    """Return the addresses to announce, where `auto` is this machine's; None if there are none."""
    known = [_own_address() if address == AUTO else address for address in addresses]
    direct = tuple(address for address in known if address is not None)
    if not direct:
        return None
    return DirectAddresses(direct, key.sign(_signed_text(name, direct)))


def check_direct_address(text: str) -> None:
    """Check an address or `auto`. Raises BadDirectAddress."""
    if text == AUTO:
        return
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        raise BadDirectAddress from None
    if not ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_unspecified:
        raise BadDirectAddress


def _own_address() -> str | None:
    """Return this machine's address in its network; None outside a private one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            address = str(probe.getsockname()[0])
            check_direct_address(address)
        except (OSError, BadDirectAddress):
            return None
    return address


def _signed_text(name: str, addresses: Sequence[str]) -> bytes:
    return "\n".join(("agentlip-network-direct-v1", name, *addresses)).encode()

"""Defines HTTP server settings: addresses, sizes, time limits and rates."""

from typing import Annotated

import msgspec


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[http]`: addresses, proxies and connections."""

    host: str = "127.0.0.1"
    """Address to bind. The default, loopback, is not reachable from other machines."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    """Port to listen on. Not set: 7464, or the next free port if 7464 is taken, which is stored in
    `.agentlip/port` and kept. A number: this port, or the start fails. 0: any free port.
    """

    unsafe_network: bool = False
    """Allow other addresses than loopback. Tokens over plain HTTP can be read on the network."""

    unix_socket: bool = False
    """Also listen on `.agentlip/sock`, which only this user can open and which needs no token."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names allowed in `Host` headers, beside loopback's. Empty on a network bind: any."""

    trusted_proxies: tuple[str, ...] = ()
    """Proxy addresses or networks whose `X-Forwarded-*` headers are trusted."""

    connections_max: int = 1000
    """Connections open at once, WebSockets included; each uses a descriptor and about 30 kB. When
    all are in use, the one that has waited longest (idle, half-sent) is closed for a new one."""

    consumers_max: int = 2500
    """Courier consumers with a token connected at once, in addition to connections_max, so that
    idle workers take no place from producers. One token may have four fifths, 2,000."""


Rate = Annotated[int, msgspec.Meta(ge=0)]


class LimitSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"global_": "global"}
):
    """`[limits]`: requests a second; 0 switches a limit off."""

    per_connection: Rate = 100
    """Requests a second on one connection. The hub specification's default. An address may send
    twice as many over all connections to routes that work without a token."""

    global_: Rate = 1000
    """Requests a second from all clients. The hub specification's default."""

    failures_per_address: Rate = 20
    """Failed authentications a second from one IPv4 address or IPv6 /64 network. Above: 429; a
    valid token from the same address still works."""

    per_token: Rate = 0
    """Requests a second with one token, over all its connections. 0: no limit."""

    per_address: Rate = 0
    """Requests a second from one IPv4 address or IPv6 /64 network, over all its connections. 0:
    no limit, because on a laptop every client is 127.0.0.1."""

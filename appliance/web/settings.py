"""Settings of the door: addresses, sizes, waits and rates, each with its unit and reason."""

from typing import Annotated

import msgspec


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[http]`. Sizes in bytes, waits in seconds."""

    host: str = "127.0.0.1"
    """Address to bind. Loopback, so that nothing is reachable before somebody says so."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    """Port to listen on. Not set: 7464, or the next free port if 7464 is taken; it is stored in
    `.agentlip/port` and kept. A number: this port, or the start fails. 0: any free port."""

    unsafe_network: bool = False
    """Must be true to bind beyond loopback: a token over plain HTTP can be read on the way."""

    unix_socket: bool = False
    """Also listen on `.agentlip/sock`: this user needs no token there, nobody else gets in."""

    allowed_hosts: tuple[str, ...] = ()
    """Names a `Host` header may carry besides loopback's. Empty on other binds: any."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks whose `X-Forwarded-*` headers are believed. Nobody's by default."""

    body_bytes_max: int = 512 * 1024
    """A legal message of 64 KiB can need six bytes a character in JSON."""

    batch_bytes_max: int = 8 * 1024 * 1024
    """500 ordinary messages; decoding more would hold the event loop too long."""

    request_line_bytes_max: int = 8190
    """What the parser can hold; longer paths come from no client of ours."""

    header_count_max: int = 100
    """Browsers behind proxies send about thirty."""

    header_bytes_max: int = 8190
    """One field. A token needs 80; cookies of other services on localhost need the rest."""

    head_bytes_max: int = 64 * 1024
    """Size of all headers of a request; limits the memory that half-sent requests use."""

    connections_max: int = 1000
    """Connections open at once, WebSockets included; each uses a descriptor and about 30 kB. When
    all are in use, the one that has waited longest (idle, half-sent) is closed for a new one."""

    unauthenticated_connections_max: int = 100
    """Requests and streams without a valid token that stay open when all connections are in use;
    at most half of connections_max."""

    probe_connections_max: int = 32
    """Connections in addition to connections_max, reserved for health probes."""

    head_seconds_max: float = 10.0
    """Time limit from the first byte of a request to the end of its head."""

    body_seconds_max: float = 60.0
    """Time limit to receive a whole body, chunked or not: 8 MiB at 1.2 Mbit/s."""

    linger_seconds_max: float = 2.0
    """How long to wait, after a response, for the unread rest of a body before closing."""

    unsent_bytes_max: int = 128 * 1024 * 1024
    """Bytes that wait to be sent, over all clients and WebSockets. Above it the slowest clients
    with the most waiting bytes are disconnected, and large reads get 503."""

    send_seconds_max: float = 60.0
    """For a peer to take one write; who does not read is let go."""

    keep_alive_seconds: float = 75.0
    """An idle connection's life: longer than the 60 s after which common proxies give up."""

    drain_seconds_max: float = 5.0
    """For requests in flight to finish after a stop; engines kill after ten seconds in all."""


Rate = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class LimitSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"global_": "global"}
):
    """`[limits]`: requests a second; 0 switches a limit off."""

    per_connection: Rate = 100
    """One client in a hot loop; the hub specification's figure."""

    global_: Rate = 1000
    """All clients together; the hub specification's figure, a fifth of what one core does."""

    unauthenticated_share: Share = 0.5
    """The share of `global` that requests without a valid token may use; the rest is reserved for
    callers with a token."""

    failures_per_address: Rate = 20
    """Failed authentications a second from one IPv4 address or IPv6 /64 network. Beyond it: 429;
    a valid token from the same address still works."""

    per_token: Rate = 0
    """One credential over all its connections. Off: most workspaces have one token."""

    per_address: Rate = 0
    """Requests a second from one IPv4 address or IPv6 /64 network, over all its connections. 0:
    no limit, because on a laptop every client is 127.0.0.1."""

    addresses_max: Rate = 10_000
    """Addresses counted separately in a second, about 100 bytes each; the rest share one count."""

"""[inbox]: settings for receiving, keeping and reading messages."""

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0)]
BrokerId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,64}$")]
Mesh = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class BrokerEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[inbox.brokers]]: the broker of one mesh, elsewhere."""

    mesh: Mesh
    url: Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=500)]
    ca_file: str | None = None  # file with CA certificates to trust instead of the system's
    broker_id: BrokerId | None = None  # only broker to sign requests for; unset: its id is learned


class InboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[inbox]: messages of meshes. Brokers to receive from: [[inbox.brokers]]."""

    mesh: Mesh = "default"  # mesh that is read if a request names none
    brokers: tuple[BrokerEndpoint, ...] = ()  # brokers to receive from; see docs/reference/inbox.md
    public_health_check: bool = False  # serve /v1/health, /v1/version, /v1/compat without a token
    retention_days: Seconds = 30.0  # how long messages and runs of hooks are kept

"""[inbox]: settings for receiving, keeping and reading messages."""

from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.mesh.broker_endpoint import BrokerEndpoint, Mesh

Days = Annotated[float, Meta(gt=0)]


class InboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[inbox]: messages of meshes. Brokers to receive from: [[inbox.brokers]]."""

    mesh: Mesh = "default"  # mesh that is read if a request names none
    brokers: tuple[BrokerEndpoint, ...] = ()  # brokers to receive from; see docs/reference/inbox.md
    public_health_check: bool = False  # serve /v1/health, /v1/version, /v1/compat without a token
    retention_days: Days = 30.0  # how long messages and hook runs are kept

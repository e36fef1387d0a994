"""Describes a broker elsewhere, as the inbox and outbox settings declare one. Pure."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

Mesh = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
BrokerId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,64}$")]


class BrokerEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[inbox.brokers]] and [[outbox.brokers]]: one mesh's broker, elsewhere."""

    mesh: Mesh
    url: Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=500)]
    ca_file: str | None = None  # file with CA certificates to trust instead of the system's
    broker_id: BrokerId | None = None  # only broker to sign requests for; unset: the id is learned

    def __post_init__(self) -> None:
        """Raise ValueError if a field is wrong. The settings reader adds the setting's name."""
        try:
            parts = urlsplit(self.url)
            valid = bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError("`url` needs a host, and its port must be from 1 to 65535")

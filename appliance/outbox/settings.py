"""Defines [outbox] and [mail]: destinations, retries, limits and retention."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from appliance.kernel.retry import RetrySettings
from appliance.mesh.broker_endpoint import BrokerEndpoint, Mesh

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Days = Annotated[float, Meta(ge=0)]
Host = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]*$", max_length=253)]
DedupeMode = Literal["retention_scoped", "permanent"]
To = Annotated[str, Meta(min_length=1, max_length=300)]
Address = Annotated[str, Meta(max_length=253)]


class MailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[mail]: the SMTP server for sends to `mailto:…`. Without a host, mail is disabled."""

    host: Host = ""  # the SMTP server's name or address; empty: mail is disabled
    port: Annotated[int, Meta(ge=1, le=65535)] = 587  # SMTP port; 465 for "tls", 25 for "none"
    security: Literal["starttls", "tls", "none"] = "starttls"  # none: plain text
    ca_file: str | None = None  # CA certificates to trust instead of the system's
    user: Annotated[str, Meta(max_length=200)] = ""  # login name; empty: no login
    password_file: str | None = None  # file with the login password, read for each connection
    sender: Address = ""  # mail address in From, and the envelope sender
    allow: tuple[Address, ...] = ()  # allowed recipients: ops@x.org, @x.org, or * for all
    allow_plain: bool = False  # allow security "none" to servers on other machines


class OrderedDestination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[outbox.in_order]]: destinations whose sends are delivered in order."""

    mesh: Mesh | None = None  # unset: every mesh
    to: To | None = None  # unset: all destinations in the mesh


class OutboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[outbox]: durable sends. Remote brokers: [[outbox.brokers]]."""

    mesh: Mesh = "default"  # mesh for sends that name none
    brokers: tuple[BrokerEndpoint, ...] = ()
    """remote brokers, one per mesh; see docs/reference/outbox.md"""
    in_order: tuple[OrderedDestination, ...] = ()
    """destinations delivered in acceptance order; see docs/reference/outbox.md"""
    message_bytes_max: Positive = 65_536  # a message body's size in UTF-8
    sends_max: Positive = 1_000_000  # undelivered sends; new sends are refused at 95 %
    bytes_max: Positive = 5 * 1024**3  # database file size; new sends are refused at 95 %
    retry: RetrySettings = RetrySettings()
    """delays after failures: the first and the longest one, how much longer each is than the one
    before, and the random share by which it varies; a receiver can ask for a longer one"""
    dedupe_mode: DedupeMode = "retention_scoped"  # how long brokers remember ids
    dedupe_retention_days: int = 7  # days the broker remembers ids; at least 7
    max_age_hours: Positive | None = None  # age at which a send expires; unset: from dedupe_*
    payload_retention_days: Days = 7.0  # days to keep delivered sends' payloads

    @property
    def retention_days(self) -> int | None:
        return None if self.dedupe_mode == "permanent" else self.dedupe_retention_days

"""[inbox]: settings for receiving, keeping and reading messages."""

from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.kernel.retry import RetrySettings

Positive = Annotated[int, Meta(ge=1)]
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
    page_max: Positive = 1000  # messages in one reply; a larger limit is clamped
    list_max: Positive = 10_000  # topics or members in one reply; a larger limit is clamped
    wait_seconds_max: Seconds = 60.0  # longest long poll; a longer one is clamped
    waiting_max: Positive = 64  # concurrent long polls
    streams_max: Positive = 32  # concurrent event streams
    queue_max: Positive = 1000  # events queued for one reader before it reads the table again
    retention_days: Seconds = 30.0  # how long messages and runs of hooks are kept
    sweep_rows_max: Positive = 2000  # rows deleted in one transaction
    vacuum_interval_days: Seconds = 7.0  # time between two checks whether VACUUM is worthwhile
    check_bytes_max: Positive = 512 * 1024 * 1024  # a larger file gets only a quick check at start
    text_bytes_max: Positive = 256 * 1024  # size of one message with its meta; larger is refused
    push_max: Positive = 200  # messages of a link stored in one transaction
    topics_max: Positive = 10_000  # remembered subscriptions of one mesh
    hello_seconds: Seconds = 10.0  # time that a broker has for hello and negotiation
    silence_seconds: Seconds = 75.0  # a link without any frame for this long is closed
    backoff_first_ms: Positive = 500  # delay before reconnecting after the first failure of a link
    backoff_factor: Annotated[float, Meta(ge=1)] = 2.0  # growth of the delay with each failure
    backoff_max_ms: Positive = 30_000  # longest delay before reconnecting
    backoff_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25  # random share of the delay
    ask_seconds: Seconds = 15.0  # timeout of a request to a broker
    answer_bytes_max: Positive = 4 * 1024 * 1024  # size of a broker's reply

    def retry(self) -> RetrySettings:
        """The delays before reconnecting to a broker."""
        return RetrySettings(
            self.backoff_first_ms / 1000,
            self.backoff_max_ms / 1000,
            self.backoff_factor,
            self.backoff_jitter,
        )

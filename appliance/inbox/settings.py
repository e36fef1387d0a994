"""[inbox]: what is received, how long it is kept, who may wait for it."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
BrokerId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,64}$")]
Mesh = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class BrokerPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[inbox.brokers]]: the broker of one mesh, elsewhere."""

    mesh: Mesh
    url: Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=500)]
    ca_file: str | None = None  # certificates to trust instead of the system's
    broker_id: BrokerId | None = None  # only broker to sign for; unset: the broker sends its id


class InboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[inbox]: messages of meshes. Brokers to receive from: [[inbox.brokers]]."""

    mesh: Mesh = "default"  # what is read when a reader names none
    brokers: tuple[BrokerPlace, ...] = ()  # beside those that are sent to; docs/inbox.md
    public_health_check: bool = False  # GET /v1/health, /v1/version and /v1/compat for everybody
    page_max: Positive = 1000  # messages in one reply; a larger limit is clamped
    list_max: Positive = 10_000  # topics or members in one reply; a larger limit is clamped
    wait_seconds_max: Seconds = 60.0  # longest long poll; a longer one is clamped
    waiting_max: Positive = 64  # long polls at once
    streams_max: Positive = 32  # event streams at once
    queue_max: Positive = 1000  # events waiting for one reader before it goes back to the table
    live_bytes_max: Positive = 32 * 1024 * 1024  # bytes of events kept for slow readers
    heartbeat_seconds: Seconds = 15.0  # a comment line keeps proxies from hanging up
    retention_days: Seconds = 30.0  # messages and runs of hooks are kept
    sweep_rows_max: Positive = 2000  # removed in one transaction
    vacuum_days: Seconds = 7.0  # between two looks for space to give back
    check_bytes_max: Positive = 512 * 1024 * 1024  # a larger file is looked through less at start
    text_bytes_max: Positive = 256 * 1024  # of one message and its meta; more is not taken
    push_max: Positive = 200  # messages taken from a link in one transaction
    topics_max: Positive = 10_000  # subscriptions of one mesh that are remembered
    hello_seconds: Seconds = 10.0  # a broker's time for hello and negotiation
    silence_seconds: Seconds = 75.0  # without any sign of the broker the link is dead
    backoff_first_ms: Positive = 500  # pause after the first failure of a link
    backoff_factor: Annotated[float, Meta(ge=1)] = 2.0  # by which it grows
    backoff_max_ms: Positive = 30_000  # longest pause
    backoff_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25  # by which it is spread
    ask_seconds: Seconds = 15.0  # for a broker's answer to a request of ours
    answer_bytes_max: Positive = 4 * 1024 * 1024  # of such an answer

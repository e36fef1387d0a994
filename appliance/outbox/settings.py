"""[outbox]: where sends go, how long they are tried, how many are kept."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
BrokerId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,64}$")]
Mesh = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[outbox.brokers]]: the broker of one mesh, elsewhere."""

    mesh: Mesh
    url: Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=500)]
    ca_file: str | None = None  # certificates to trust instead of the system's
    broker_id: BrokerId | None = None  # only broker to sign for; unset: the broker sends its id


Address = Annotated[str, Meta(max_length=253)]
OneLine = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=100)]


class MailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[mail]: the server that takes sends to `mailto:…`. Without a host there is no mail."""

    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]*$", max_length=253)] = ""  # its name
    port: Annotated[int, Meta(ge=1, le=65535)] = 587  # 465 for security "tls", 25 for "none"
    security: Literal["starttls", "tls", "none"] = "starttls"  # none: nothing is encrypted
    ca_file: str | None = None  # certificates to trust instead of the system's
    user: Annotated[str, Meta(max_length=200)] = ""  # as whom we log in; empty: we don't
    password_file: str | None = None  # read anew for each mail
    sender: Address = ""  # the address that mail is from
    sender_name: OneLine = "Agentlip"  # and its name
    allow: tuple[Address, ...] = ()  # where mail may go: ops@x.org, @x.org, or * for anywhere
    recipients_max: Annotated[int, Meta(ge=1, le=100)] = 10  # of one mail
    message_bytes_max: Positive = 65_536  # of a mail's text; outbox.message_bytes_max holds too
    allow_loopback: bool = True  # the server may be on this machine
    allow_private: bool = False  # or in a private network, such as 10.0.0.0/8
    allow_plain: bool = False  # security "none" beyond this machine: everybody on the way can read
    connect_seconds: Annotated[float, Meta(gt=0)] = 5.0  # to reach the server
    reply_seconds: Annotated[float, Meta(gt=0)] = 30.0  # for each of its answers
    delivery_seconds: Annotated[float, Meta(gt=0)] = 120.0  # for one mail in all


class InOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[outbox.in_order]]: destinations whose sends go one by one, in the order of acceptance."""

    mesh: Mesh | None = None  # of every mesh
    to: Annotated[str, Meta(min_length=1, max_length=300)] | None = None  # all of the mesh


class OutboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[outbox]: sends that survive anything. Brokers elsewhere: [[outbox.brokers]]."""

    enabled: bool = True  # off: nothing is sent, and sends are refused
    mesh: Mesh = "default"  # where sends go that name no mesh
    brokers: tuple[BrokerSettings, ...] = ()  # by mesh; docs/outbox.md
    ordered: bool = False  # within a destination in the order of acceptance, one at a time
    in_order: tuple[InOrder, ...] = ()  # only these destinations; docs/outbox.md
    message_bytes_max: Positive = 65_536  # of a body in UTF-8; what brokers take inline
    meta_bytes_max: Positive = 16_384  # of meta as JSON
    batch_max: Positive = 500  # sends in one POST /v1/send/batch
    in_flight_max: Positive = 64  # requests that send at the same time; more hear 429
    sends_max: Positive = 1_000_000  # not yet delivered; the outbox is full then
    bytes_max: Positive = 5 * 1024**3  # of its file; the outbox is full then
    writer: Literal["process", "thread"] = "thread"  # of its file; a process is quicker, and larger
    deliver_max: Annotated[int, Meta(ge=1, le=200)] = 200  # sends in one request to a broker
    deliver_bytes_max: Positive = 4 * 1024 * 1024  # and their bytes
    concurrency_max: Positive = 16  # deliveries at the same time, in all
    route_concurrency_max: Positive = 2  # deliveries at the same time to one broker or host
    poll_seconds: Annotated[float, Meta(gt=0)] = 0.5  # how late a retry may come
    connect_seconds: Annotated[float, Meta(gt=0)] = 5.0  # to reach a broker
    reply_seconds: Annotated[float, Meta(gt=0)] = 15.0  # for its whole answer
    reply_bytes_max: Positive = 1024 * 1024  # of its answer; more is not read
    backoff_first_ms: Positive = 500  # pause after the first failure
    backoff_factor: Annotated[float, Meta(ge=1)] = 2.0  # by which it grows
    backoff_max_ms: Positive = 30_000  # longest pause of our own
    backoff_jitter: Share = 0.25  # by which it is spread
    retry_after_max_ms: Positive = 3_600_000  # longest pause that a receiver may ask for
    breaker_failures: Positive = 5  # in a row, before a route is left alone
    breaker_probe: Positive = 10  # sends that find out whether it works again
    dedupe_mode: Literal["retention_scoped", "permanent"] = "retention_scoped"  # of the broker
    dedupe_retention_days: int = 7  # for which it remembers ids; 7 is the least it may
    max_age_hours: Annotated[int, Meta(ge=1)] | None = None  # sends become; from the days above
    payload_days: Annotated[float, Meta(ge=0)] = 7.0  # that payloads of delivered sends are kept
    idempotency_hours: Annotated[float, Meta(ge=0)] = 24.0  # that an operator's keys are kept
    sweep_rows_max: Positive = 1000  # rows that one round of upkeep changes
    check_bytes_max: Positive = 512 * 1024 * 1024  # a larger file is looked through less at start
    page_max: Positive = 1000  # rows of one listing
    requeue_max: Positive = 1000  # sends that one requeue by filter takes up

    @property
    def retention_days(self) -> int | None:
        return None if self.dedupe_mode == "permanent" else self.dedupe_retention_days

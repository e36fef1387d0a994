"""[courier]: streams, limits, tokens and triggers of the envelope queue."""

from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.courier.policy import Expiry, Full, Policy, most_specific
from appliance.courier.trigger import Rule

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Glob = Annotated[str, Meta(min_length=1, max_length=256)]


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[courier.streams]]: what differs for streams that match `pattern`. The most specific
    pattern that matches decides alone; what it leaves out has the value of [courier]."""

    pattern: Glob
    durable: bool | None = None
    depth_max: Positive | None = None
    bytes_max: Positive | None = None
    lease_ms: Positive | None = None
    full: Full | None = None
    block_ms: Count | None = None
    deliveries_max: Count | None = None
    backoff_ms: Count | None = None
    backoff_ms_max: Count | None = None
    dead_max: Count | None = None
    ttl_ms: Count | None = None
    ttl_action: Expiry | None = None
    aging_ms: Count | None = None
    recent_max: Count | None = None
    rate: Annotated[float, Meta(ge=0)] | None = None
    burst: Annotated[float, Meta(ge=0)] | None = None


class TokenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[courier.tokens]]: a file that holds a token, and what it may do."""

    token_file: str
    scopes: list[str]
    name: str = "courier token"


class CourierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[courier]: streams of envelopes. Where streams differ: [[courier.streams]]."""

    lease_ms: Positive = 30_000  # time to ack a delivery, unless the taker asks for another
    lease_ms_max: Positive = 3_600_000  # longest lease one may ask for
    lease_total_ms_max: Positive = 43_200_000  # longest an extended lease may live
    depth_max: Positive = 100_000  # envelopes in one stream: ready, delayed and leased
    bytes_max: Positive = 256 * 1024 * 1024  # of envelopes in one stream, dead ones too
    bytes_total_max: Positive = 512 * 1024 * 1024  # of envelopes in all streams
    full: Full = "reject"  # what a full stream does: reject, drop_oldest, block
    block_ms: Count = 5_000  # how long a producer waits at a blocking stream
    waiting_max: Positive = 500  # producers and receivers that wait at the same time
    deliveries_max: Count = 0  # deliveries before an envelope is dead; 0: no limit
    backoff_ms: Count | None = None  # pause after a failure, doubling; 1 s with deliveries_max
    backoff_ms_max: Count = 60_000  # longest pause after a failure
    dead_max: Count = 10_000  # dead letters kept for each stream; the oldest give way
    ttl_ms: Count = 0  # life of an envelope that says none itself; 0: for ever
    ttl_action: Expiry = "drop"  # what happens at its end: drop, dead
    aging_ms: Count = 10_000  # waiting so long raises an envelope by one priority; 0: never
    recent_max: Count = 10_000  # acked ids remembered in each stream, against duplicates
    recent_seconds: float = 600.0  # and for how long
    history_max: Count = 20  # attempts of one envelope that are kept to be looked at
    envelope_bytes_max: Positive = 256 * 1024  # of one envelope's JSON
    batch_max: Positive = 1_000  # envelopes in one batch or in one array on /v1/publish
    credit_max: Positive = 10_000  # of one taker; a higher grant is an error
    receive_max: Positive = 1_000  # envelopes of one POST /v1/receive
    delivery_bytes_max: Positive = 1024 * 1024  # of several in one write, frame or receive
    wait_seconds_max: float = 30.0  # longest long poll; a longer one is clamped
    streams_max: Positive = 10_000  # streams at once; more are refused
    idle_seconds: float = 3_600.0  # an empty stream nobody used for so long is forgotten
    fixed: bool = False  # only streams that a pattern below declares exist
    view_rows_max: Positive = 10_000  # of one view; the row that changed first gives way
    view_bytes_max: Positive = 64 * 1024 * 1024  # of envelopes in one view; likewise
    page_max: Positive = 1_000  # envelopes of one listing
    hops_max: Positive = 8  # triggers an envelope may go through, one after the other
    derived_max: Positive = 100  # envelopes that one insert may cause
    trigger_targets: tuple[Glob, ...] = ("*",)  # streams that triggers may write to
    rate_per_token: float = 0.0  # envelopes a second of one token; 0: no limit
    rate_per_stream: float = 0.0  # envelopes a second into one stream; 0: no limit
    redrive_rate: float = 1_000.0  # dead letters a second that a redrive may return
    tick_seconds: float = 0.02  # how late a lease may end, a delay come due
    tick_items_max: Positive = 5_000  # things that one tick does before others get a turn
    journal_seconds: float = 0.01  # how late a durable stream hears of acks
    event_log: bool = False  # a log line for every enqueue, delivery, ack and trigger
    streams: tuple[StreamSettings, ...] = ()  # what differs, by pattern; docs/courier.md
    triggers: tuple[Rule, ...] = ()  # rules run on insert; docs/courier.md
    tokens: tuple[TokenSettings, ...] = ()  # with one, loopback needs a token as well

    def policy_of(self, stream: str) -> Policy:
        """How the stream of this name behaves."""
        glob = most_specific((one.pattern for one in self.streams), stream)
        values = {
            name: getattr(self, name)
            for name in Policy.__struct_fields__
            if hasattr(self, name) and name not in ("rate", "burst")
        }
        values["rate"] = self.rate_per_stream
        if glob is not None:
            own = next(one for one in self.streams if one.pattern == glob)
            for name in Policy.__struct_fields__:
                value = getattr(own, name, None)
                if value is not None:
                    values[name] = value
        return Policy(**values)

    def pattern_of(self, stream: str) -> str:
        """The declared pattern that decides about a stream; `other` where none does."""
        return most_specific((one.pattern for one in self.streams), stream) or "other"

    @property
    def any_durable(self) -> bool:
        return any(one.durable for one in self.streams)

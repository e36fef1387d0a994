"""Defines [courier]: streams, limits, tokens and triggers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.courier.policy import (
    DELIVERIES_MAX,
    OverflowPolicy,
    StreamPolicy,
    TtlAction,
    most_specific,
)
from appliance.courier.trigger import TriggerRule
from appliance.kernel.retry import RetrySettings

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Lease = Annotated[float, Meta(ge=0.001)]
Glob = Annotated[str, Meta(min_length=1, max_length=256)]


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[courier.streams]]: settings for streams that match `pattern`. Only the most specific
    matching pattern applies; settings that it leaves out have their values from [courier]."""

    pattern: Glob
    durable: bool | None = None
    depth_max: Positive | None = None
    lease_seconds: Lease | None = None
    overflow_policy: OverflowPolicy | None = None
    deliveries_max: Count | None = None
    retry: RetrySettings | None = None
    ttl_seconds: Seconds = 0.0
    ttl_action: TtlAction = "drop"
    rate: Annotated[float, Meta(ge=0)] | None = None


class TokenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[courier.tokens]]: a file that contains a token, and that token's scopes."""

    token_file: str
    scopes: list[str]
    name: str = "courier token"


class CourierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[courier]: envelope streams. [[courier.streams]] overrides settings for some streams."""

    lease_seconds: Lease = 30.0
    """seconds to ack a delivery, unless the consumer asks for another lease"""
    depth_max: Positive = 100_000  # ready, delayed and leased envelopes in one stream
    bytes_max: Positive = 256 * 1024 * 1024
    """envelope bytes in one stream, dead letters included"""
    bytes_total_max: Positive = 512 * 1024 * 1024  # envelope bytes in all streams
    overflow_policy: OverflowPolicy = "reject"  # what a full stream does with new envelopes
    deliveries_max: Count = DELIVERIES_MAX
    """deliveries before an envelope becomes a dead letter; 0 means no limit"""
    retry: RetrySettings | None = None
    """delays before redeliveries: initial_seconds, max_seconds, factor and jitter, as in
    outbox.retry. Unset: 1 s, doubled up to 60 s"""
    declared_only: bool = False  # allow only streams that match a pattern in [[courier.streams]]
    trigger_targets: tuple[Glob, ...] = ("*",)  # stream patterns that triggers may write to
    rate_per_token: float = 0.0  # envelopes per second from one token; 0 means no limit
    rate_per_stream: float = 0.0  # envelopes per second into one stream; 0 means no limit
    streams: tuple[StreamSettings, ...] = ()
    """stream settings by pattern; see docs/reference/courier.md"""
    triggers: tuple[TriggerRule, ...] = ()
    """rules that run when envelopes are enqueued; see docs/reference/courier.md"""
    tokens: tuple[TokenSettings, ...] = ()
    """tokens and their scopes; if there are any, loopback clients need one too"""

    def policy_of(self, stream: str) -> StreamPolicy:
        """Return the policy for the stream with this name."""
        glob = most_specific((declared.pattern for declared in self.streams), stream)
        values = {
            name: getattr(self, name)
            for name in StreamPolicy.__struct_fields__
            if hasattr(self, name) and name != "rate"
        }
        values["rate"] = self.rate_per_stream
        if glob is not None:
            own = next(declared for declared in self.streams if declared.pattern == glob)
            for name in StreamPolicy.__struct_fields__:
                value = getattr(own, name, None)
                if value is not None:
                    values[name] = value
        return StreamPolicy(**values)

    def pattern_of(self, stream: str) -> str:
        """Return the declared pattern that applies to a stream, or `other`."""
        return most_specific((declared.pattern for declared in self.streams), stream) or "other"

    @property
    def any_durable(self) -> bool:
        return any(declared.durable for declared in self.streams)

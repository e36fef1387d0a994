"""Starts jobs on courier envelopes."""

from collections.abc import Callable, Sequence

from appliance.courier.service import Courier
from appliance.jobs.loops import JobEvent
from appliance.kernel.clock import Clock


class EnvelopeJobEvents:
    """The latest envelope in each stream, in memory or durable. An event's number is the time in ms
    when the envelope was accepted, so stored positions stay comparable after a restart."""

    source, key = "courier", "envelopes"

    def __init__(self, courier: Courier, clock: Clock) -> None:
        self._courier = courier
        self._clock = clock

    def newest(self) -> int:
        return self._clock.now_ms() - 1

    def after(self, number: int, _limit: int) -> Sequence[JobEvent]:
        """Return the newer envelopes, without those in the current millisecond: more may follow."""
        now_ms = self._clock.now_ms()
        after_ms = 0 if number > now_ms else number  # the clock was set back
        latest = [(fit.last_ms, name) for name, fit in self._courier.pipeline.contexts.items()]
        return [
            JobEvent(ms, "envelope.accepted", stream)
            for ms, stream in sorted(latest)
            if after_ms < ms < now_ms
        ]

    def listen(self, wake: Callable[[], None]) -> None:
        """Do nothing: the events are polled, because a callback per envelope would slow the courier
        down."""

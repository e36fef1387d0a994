"""Decides which envelope outcomes are logged: all in durable streams, a sample in memory
streams. Pure.

Durable streams' outcomes are part of the changes for the journal. The log is written after the
journal, when no changes wait for that, so a burst of acks does not wait for it. Outcomes whose
changes are in the journal and samples wait here, in a limited number; a crash loses these log rows,
and no state. An envelope is in the sample by its id, so all its outcomes are logged or none.
"""

from collections import deque
from typing import Any
from zlib import crc32

from appliance.courier.change import EnvelopeOutcome
from appliance.courier.item import StreamItem

ACKED, FAILED, REJECTED, EXPIRED, DEAD = (
    "envelope.acked", "envelope.failed", "envelope.rejected", "envelope.expired", "envelope.dead",
)  # fmt: skip

SAMPLE_RATE = 0.01  # share of memory streams' envelopes: enough for rates and latencies
SAMPLES_MAX = 20_000  # samples that wait; the oldest are dropped first, while the disk is full
SAMPLES_DUE = 1_000  # samples that are written at once
SAMPLE_MS = 1_000.0  # how late a smaller number is written
JOURNALED_MAX = 50_000  # outcomes that wait, about 400 bytes each; with more, acks wait for the log
JOURNALED_MS = 10_000.0  # how late outcomes are written, also without a quiet moment
JOURNALED_ROWS = 1_000  # in one transaction: some 2 ms for the writer


class OutcomeLog:
    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.sample_rate = SAMPLE_RATE if enabled else 0.0
        self.threshold = round(self.sample_rate * 2**32)
        self._samples: deque[EnvelopeOutcome] = deque(maxlen=SAMPLES_MAX)
        self._written_ms = 0.0
        self._journaled: deque[tuple[float, list[EnvelopeOutcome]]] = deque()
        self._journaled_count = 0

    def record(
        self, name: str, item: StreamItem, now: float, consumer: Any = None, error: str = ""
    ) -> EnvelopeOutcome | None:
        """Return the outcome in a durable stream; None: outcomes are not logged."""
        return outcome_of(name, item, now, consumer, error) if self.enabled else None

    def add(
        self, name: str, item: StreamItem, now: float, consumer: Any = None, error: str = ""
    ) -> None:
        """Count an outcome in a memory stream."""
        if self.threshold and crc32(item.id.encode()) < self.threshold:
            self._samples.append(outcome_of(name, item, now, consumer, error))

    def add_journaled(self, outcomes: list[EnvelopeOutcome], now: float) -> None:
        """Keep durable streams' outcomes whose changes the journal has."""
        if outcomes:
            self._journaled.append((now, outcomes))
            self._journaled_count += len(outcomes)

    def take_journaled(self, now: float, *, quiet: bool) -> list[EnvelopeOutcome]:
        """Return the next outcomes to write, if `quiet` or if they are due."""
        taken: list[EnvelopeOutcome] = []
        while self._journaled:
            is_due = quiet or now - self._journaled[0][0] >= JOURNALED_MS
            is_due = is_due and len(taken) < JOURNALED_ROWS
            if not (is_due or self._journaled_count > JOURNALED_MAX):
                break
            _, outcomes = self._journaled.popleft()
            self._journaled_count -= len(outcomes)
            taken += outcomes
        return taken

    def pop(self, now: float, limit: int, *, at_once: bool = False) -> list[EnvelopeOutcome]:
        """Return the next samples, if they are due or `at_once`."""
        samples = self._samples
        due = at_once or len(samples) >= SAMPLES_DUE or now - self._written_ms >= SAMPLE_MS
        if not samples or not due:
            return []
        self._written_ms = now
        return [samples.popleft() for _ in range(min(limit, len(samples)))]

    def put_back(
        self, samples: list[EnvelopeOutcome], journaled: list[EnvelopeOutcome], now: float
    ) -> None:
        """Keep unwritten rows. Nothing is added to `journaled` while that is so."""
        if journaled:
            self._journaled.appendleft((now, journaled))
            self._journaled_count += len(journaled)
        free = SAMPLES_MAX - len(self._samples)
        self._samples.extendleft(reversed(samples[-free:] if free else []))


def failure(outcome: str, error: str) -> tuple[str, str]:
    """Return a failed attempt's name and error."""
    if outcome == "lease_expired":
        return FAILED, outcome
    return (REJECTED if outcome == "rejected" else FAILED), error


def death(reason: str, error: str) -> str:
    """Return a dead letter's error: its reason, and the consumer's last message."""
    return f"{reason}: {error}" if error else reason


def outcome_of(
    name: str, item: StreamItem, now: float, consumer: Any, error: str
) -> EnvelopeOutcome:
    """Make an outcome. `consumer` had the lease that ended; None: there was no lease."""
    who, leased_at = (None, None) if consumer is None else (consumer.name, item.leased_at)
    return EnvelopeOutcome(
        name, error or None, item.stream.name, item.id, who, item.attempts or None, now, item.at,
        leased_at,
    )  # fmt: skip

"""What the journal writes: envelopes of durable streams, their changes, and outcomes. Pure.

These records are passed to the writer's thread and stored as rows, never as they are.
"""

from msgspec import Struct


class JournalRecord(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The name of a class is the tag of its records."""


class EnvelopeAppended(JournalRecord, frozen=True):
    """A new envelope, in the order of the journal's columns; times of the steady clock."""

    stream: str
    id: str
    body: bytes
    priority: int
    key: str | None
    accepted_ms: int
    due_ms: int | None
    expires_ms: int | None


class EnvelopeOutcome(JournalRecord, frozen=True):
    """What became of an envelope, for the log; times of the monotonic clock. `attempt`: the number
    of the delivery. `delivered_ms` and `consumer`: those of the lease that ended, if there was
    one."""

    name: str
    error: str | None
    stream: str
    id: str
    consumer: str | None
    attempt: int | None
    at_ms: float
    accepted_ms: float
    delivered_ms: float | None


class JournalChange(JournalRecord, frozen=True):
    """A change of a durable stream."""


class EnvelopeChange(JournalChange, frozen=True):
    """`row`: the number of the envelope's row in the journal."""

    row: int


class LoggedChange(EnvelopeChange, frozen=True):
    """Is in the log too. `logged`: None if outcomes are not logged."""

    logged: EnvelopeOutcome | None


class EnvelopeGone(EnvelopeChange, frozen=True):
    """It was dropped, or was never accepted."""


class EnvelopeAcked(LoggedChange, frozen=True):
    """`ordinal` counts the acks of the stream, which remembers the latest `limit` ids."""

    stream: str
    ordinal: int
    limit: int
    id: str


class EnvelopeReturned(EnvelopeChange, frozen=True):
    """Is ready again, now or after `delay_ms`."""

    attempts: int
    failures: int
    delay_ms: float


class AttemptFailed(LoggedChange, frozen=True):
    """`limit`: how many attempts of the envelope are kept; with 0 only the log has it."""

    limit: int
    consumer: str
    outcome: str
    error: str


class EnvelopeDead(LoggedChange, frozen=True):
    attempts: int
    reason: str
    error: str


class EnvelopeExpired(LoggedChange, frozen=True):
    """Another change says what became of the envelope."""


class EnvelopeRedriven(EnvelopeChange, frozen=True):
    """A dead letter is ready again."""


class StreamPaused(JournalChange, frozen=True):
    stream: str
    left_ms: float | None


class StreamResumed(JournalChange, frozen=True):
    stream: str


class StreamForgotten(JournalChange, frozen=True):
    stream: str


class LatestDropped(JournalChange, frozen=True):
    """The view of all inboxes has its latest envelope no more."""

    stream: str


class JournalBatch(Struct, frozen=True, array_like=True):
    """What one transaction writes: changes in the order they happened, and outcomes, those of
    changes that were written before and samples. `offset_ms`: the wall clock minus the monotonic
    clock, which the outcomes have."""

    changes: list[JournalChange]
    journaled: list[EnvelopeOutcome]
    samples: list[EnvelopeOutcome]
    sample_rate: float
    offset_ms: float

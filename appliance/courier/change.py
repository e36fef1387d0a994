"""Defines the journal's records: durable streams' envelopes, their changes, and outcomes. Pure.

Records are passed to the writer's thread and stored as rows.
"""

from msgspec import Struct


class JournalRecord(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A record, whose class name is its tag."""


class EnvelopeAppended(JournalRecord, frozen=True):
    """A new envelope, in the journal's column order; steady clock times."""

    stream: str
    id: str
    body: bytes
    priority: int
    key: str | None
    accepted_ms: int
    due_ms: int | None
    expires_ms: int | None


class EnvelopeOutcome(JournalRecord, frozen=True):
    """An envelope's outcome, for the log; monotonic clock times. `attempt`: the delivery's number.
    `delivered_ms` and `consumer`: the ended lease's, if there was one."""

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
    """A durable stream's change."""


class EnvelopeChange(JournalChange, frozen=True):
    """An envelope's change. `row`: the envelope's row number in the journal."""

    row: int


class LoggedChange(EnvelopeChange, frozen=True):
    """Is in the log too. `logged`: None if outcomes are not logged."""

    logged: EnvelopeOutcome | None


class EnvelopeGone(EnvelopeChange, frozen=True):
    """The envelope was dropped, or was never accepted."""


class EnvelopeAcked(LoggedChange, frozen=True):
    """The envelope was acked. `ordinal` counts the stream's acks, and the stream remembers the
    latest `limit` ids."""

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
    """An attempt failed. `limit`: how many of the envelope's attempts are kept; with 0 only the
    log has it."""

    limit: int
    consumer: str
    outcome: str
    error: str


class EnvelopeDead(LoggedChange, frozen=True):
    attempts: int
    reason: str
    error: str


class EnvelopeExpired(LoggedChange, frozen=True):
    """The envelope expired. Another change has the outcome."""


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
    """The view of all inboxes lost its latest envelope."""

    stream: str


class JournalBatch(Struct, frozen=True, array_like=True):
    """One transaction's content: changes in the order they happened, and outcomes, from changes
    written before and from samples. `offset_ms`: the wall clock minus the monotonic clock, which
    the outcomes have."""

    changes: list[JournalChange]
    journaled: list[EnvelopeOutcome]
    samples: list[EnvelopeOutcome]
    sample_rate: float
    offset_ms: float

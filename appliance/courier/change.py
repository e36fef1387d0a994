"""Changes of durable streams that the journal writes, and the outcomes in its log. Pure.

They are passed to the writer's thread in a `JournalBatch` and stored as rows, never as they are.
"""

from msgspec import Struct

Fact = tuple[str, str, str | None, int | None, float, float, float | None]
"""Stream, id, consumer, number of the delivery, and monotonic milliseconds: when it happened, when
the envelope was accepted and when it was delivered."""

Sample = tuple[str, str | None, Fact]
"""Name, error, and what is in the row beside them."""


class ChangeRecord(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The name of a class is the tag of its records."""


class EnvelopeChange(ChangeRecord, frozen=True):
    """`row`: the number of the envelope's row in the journal."""

    row: int


class LoggedChange(EnvelopeChange, frozen=True):
    """Is in the log too. `fact`: None if outcomes are not logged."""

    fact: Fact | None


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


class StreamPaused(ChangeRecord, frozen=True):
    stream: str
    left_ms: float | None


class StreamResumed(ChangeRecord, frozen=True):
    stream: str


class StreamForgotten(ChangeRecord, frozen=True):
    stream: str


class LatestDropped(ChangeRecord, frozen=True):
    """The view of all inboxes has its latest envelope no more."""

    stream: str


Outcome = EnvelopeAcked | AttemptFailed | EnvelopeDead | EnvelopeExpired
JournalChange = (
    Outcome
    | EnvelopeGone
    | EnvelopeReturned
    | EnvelopeRedriven
    | StreamPaused
    | StreamResumed
    | StreamForgotten
    | LatestDropped
)


class JournalBatch(Struct, frozen=True, array_like=True):
    """What one transaction writes: changes in the order they happened, and outcomes, those of
    changes that were written before and samples. `offset_ms`: the wall clock minus the monotonic
    clock, which the outcomes have."""

    changes: list[JournalChange]
    journaled: list[Outcome]
    samples: list[Sample]
    sample_rate: float
    offset_ms: float

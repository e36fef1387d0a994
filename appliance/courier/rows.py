"""Generated from the migrations of the courier by `just models`: its rows as tuples."""

from typing import NamedTuple


class AckedRow(NamedTuple):
    """A row in `acked`."""

    stream: str
    slot: int
    place: int
    id: str
    at_ms: int


class AttemptRow(NamedTuple):
    """A row in `attempts`."""

    number: int
    slot: int
    at_ms: int
    holder: str
    outcome: str
    error: str


class EnvelopeRow(NamedTuple):
    """A row in `journal`."""

    number: int
    stream: str
    id: str
    body: bytes
    priority: int
    key: str | None
    accepted_ms: int
    due_ms: int | None
    expires_ms: int | None
    attempts: int
    failures: int
    reason: str | None
    error: str


class LatestRow(NamedTuple):
    """A row in `latest`."""

    stream: str
    body: bytes
    at_ms: int


class PausedRow(NamedTuple):
    """A row in `paused`."""

    stream: str
    until_ms: int | None

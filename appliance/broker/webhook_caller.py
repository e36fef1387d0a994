"""What calls webhooks: a protocol that the roof fills, and what it may say. Pure."""

from typing import Literal, Protocol

from msgspec import Struct

Outcome = Literal["delivered", "failed", "gone"]


class Called(Struct, frozen=True):
    """How one call went. `reason` is kept with the delivery, so it holds no secret."""

    outcome: Outcome
    reason: str = ""
    retry_after_seconds: float | None = None


class Caller(Protocol):
    @property
    def seconds_max(self) -> float:
        """Within which a call ends, whatever the receiver does."""
        ...

    def check(self, url: str) -> None:
        """Raises Invalid for an address that may not be called."""
        ...

    def call(self, url: str, headers: dict[str, str], body: str) -> Called:
        """One POST. Never raises for what a receiver does."""
        ...

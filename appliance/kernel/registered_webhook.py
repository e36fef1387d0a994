"""Shares secrets, and what an attempt changes, between hub webhooks and mesh webhooks. Pure.

Times are milliseconds on the caller's clock.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from appliance.kernel import webhook_signature
from appliance.kernel.clock import DAY_MS
from appliance.kernel.delivery import CallOutcome
from appliance.kernel.errors import Invalid

GRACE_MS = DAY_MS  # how long a replaced secret still signs too
PATIENCE_MS = 5 * DAY_MS  # a webhook that fails for longer is disabled
Message = TypeVar("Message", contravariant=True)
Columns = dict[str, str | int | None]


class RegisteredWebhook(Protocol):
    """The columns that both tables have."""

    @property
    def enabled(self) -> int: ...
    @property
    def secret(self) -> str: ...
    @property
    def former_secret(self) -> str | None: ...
    @property
    def former_until_ms(self) -> int | None: ...
    @property
    def failing_since_ms(self) -> int | None: ...


class WebhookOutbox(Protocol[Message]):
    """The outbox, passed in by `composition.py` to subsystems that hand over webhook messages."""

    def waiting(self, webhook_id: str, limit: int) -> int:
        """Return how many messages a webhook has not delivered, counted up to `limit`."""
        ...

    def retry(self, changed: set[str]) -> None:
        """Retry these webhooks' undelivered messages now, and remove the webhooks from the set."""
        ...

    def accept(self, handed: Sequence[Message]) -> int:
        """Return how many messages were accepted, from the first on. Accepted messages are
        durable."""
        ...


def requested_secret(secret: str | None, new: bool) -> str | None:
    """Return the secret that a request sets, or a new one; None: the secret stays. Raise
    BadSecret, and Invalid if both are requested."""
    if secret is None:
        return webhook_signature.new_secret() if new else None
    if new:
        raise Invalid(
            "secret and new_secret exclude each other",
            details={"field": "new_secret"},
            hint="send either secret or new_secret",
        )
    webhook_signature.key_of(secret)
    return secret


def secrets_of(row: RegisteredWebhook, now_ms: int) -> list[str]:
    """Return the secrets that sign now, the current one first."""
    if row.former_secret is None or now_ms >= (row.former_until_ms or 0):
        return [row.secret]
    return [row.secret, row.former_secret]


def rotate(row: RegisteredWebhook, secret: str | None, now_ms: int) -> Columns:
    """Return the columns that change with the secret."""
    if secret is None or secret == row.secret:
        return {}
    return {"secret": secret, "former_secret": row.secret, "former_until_ms": now_ms + GRACE_MS}


def note_outcome(
    row: RegisteredWebhook, outcome: CallOutcome, now_ms: int
) -> tuple[Columns, str | None]:
    """Return the columns that change after an attempt, and the cause if it disables the webhook."""
    since = row.failing_since_ms
    if not row.enabled:
        return {}, None
    if outcome == "delivered":
        return ({} if since is None else {"failing_since_ms": None}), None
    if outcome == "gone":
        return {"enabled": 0, "disabled_because": "the receiver responded with 410 Gone"}, "gone"
    if since is None:
        return {"failing_since_ms": now_ms}, None
    if now_ms - since >= PATIENCE_MS:
        return {"enabled": 0, "disabled_because": "no delivery succeeded for 5 days"}, "failing"
    return {}, None

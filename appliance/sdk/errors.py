"""Defines the hub's errors as exceptions. The error code determines the class.

Refused ├── InvalidInput ── PayloadTooLarge, CrossChannelMove ├── TokenRejected, NotAllowed,
NotFound ├── VersionConflict, AlreadyExists, Paused, KeyReused └── RateLimited, HubBusy ──
StorageFull
"""

from typing import Any

from appliance.kernel.errors import ApplianceError

Json = dict[str, Any]


class Refused(ApplianceError):
    """The hub rejected the request. `body` is the response; all other fields are parts of the
    body."""

    def __init__(self, status: int, body: Json, retry_after: float | None = None) -> None:
        super().__init__(
            str(body.get("error") or f"the hub answered with status {status}"),
            details=body["details"] if isinstance(body.get("details"), dict) else {},
            hint=str(body.get("hint") or ""),
            retry_after=retry_after,
        )
        self.http_status = status
        self.body = body
        if self.answer_code:
            vars(self)["code"] = self.answer_code  # also codes that this release does not know

    @property
    def answer_code(self) -> str:
        return str(self.body.get("code") or "")


class InvalidInput(Refused):
    """The request is invalid. Repeating it does not help."""


class PayloadTooLarge(InvalidInput):
    """The request is too large; `details` has the limit."""


class CrossChannelMove(InvalidInput):
    """Messages cannot move to another channel."""


class TokenRejected(Refused):
    """The token is missing, unknown or revoked."""


class NotAllowed(Refused):
    """The token lacks the scope, at all or in this channel."""


class NotFound(Refused):
    """The channel, topic, message or other object does not exist."""


class VersionConflict(Refused):
    """The message has another version than `expected`."""

    @property
    def current(self) -> int:
        return int(self.details.get("current") or self.body.get("current_version") or 0)

    @property
    def expected(self) -> int:
        return int(self.details.get("expected") or 0)


class AlreadyExists(Refused):
    """The name is taken; `details` has the existing object's id."""


class KeyReused(Refused):
    """The idempotency key was used for another request."""


class Paused(Refused):
    """An operator or a limit has paused the name, the topic or all agents; `details` has the
    author, the reason and the end."""


class RateLimited(Refused):
    """Too many requests, and the client's retries are used up."""


class HubBusy(Refused):
    """The hub is starting, stopping or overloaded."""


class StorageFull(HubBusy):
    """The hub's disk is full. Reads work; writes work again when there is space."""


BY_CODE: dict[str, tuple[int, type[Refused]]] = {
    "INVALID_INPUT": (400, InvalidInput),
    "PAYLOAD_TOO_LARGE": (400, PayloadTooLarge),
    "CROSS_CHANNEL_MOVE": (400, CrossChannelMove),
    "UNAUTHORIZED": (401, TokenRejected),
    "FORBIDDEN": (403, NotAllowed),
    "NOT_FOUND": (404, NotFound),
    "VERSION_CONFLICT": (409, VersionConflict),
    "ALREADY_EXISTS": (409, AlreadyExists),
    "PAUSED": (409, Paused),
    "IDEMPOTENCY_KEY_REUSED": (422, KeyReused),
    "RATE_LIMITED": (429, RateLimited),
    "SERVICE_UNAVAILABLE": (503, HubBusy),
    "STORAGE_FULL": (503, StorageFull),
    "FILE_SYSTEM_READ_ONLY": (503, HubBusy),
}
BY_STATUS: dict[int, type[Refused]] = {
    400: InvalidInput,
    401: TokenRejected,
    403: NotAllowed,
    404: NotFound,
    429: RateLimited,
    502: HubBusy,
    503: HubBusy,
    504: HubBusy,
}


def refusal(status: int, body: Json, retry_after: float | None = None) -> Refused:
    """Return the exception for an error response. Batch items have no status: pass 0."""
    usual, kind = BY_CODE.get(str(body.get("code") or ""), (500, None))
    status = status or usual
    return (kind or BY_STATUS.get(status, Refused))(status, body, retry_after)

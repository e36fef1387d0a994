"""What the hub answered instead of a success, as classes: the machine code decides which.

Refused
├── InvalidInput ── PayloadTooLarge, CrossChannelMove
├── TokenRejected, NotAllowed, NotFound
├── VersionConflict, AlreadyExists, KeyReused
└── RateLimited, HubBusy ── StorageFull
"""

from typing import Any

from appliance.kernel.errors import ApplianceError

Json = dict[str, Any]


class Refused(ApplianceError):
    """The answer word for word in `body`; `code`, `details`, `hint` and `retry_after` of it."""

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
            vars(self)["code"] = self.answer_code  # the hub's own word, known here or not

    @property
    def answer_code(self) -> str:
        return str(self.body.get("code") or "")


class InvalidInput(Refused):
    """The request is wrong; sending it again changes nothing."""


class PayloadTooLarge(InvalidInput):
    """Too many bytes; `details` has the limit."""


class CrossChannelMove(InvalidInput):
    """Messages stay in their channel."""


class TokenRejected(Refused):
    """No token, or one that nobody knows (any more)."""


class NotAllowed(Refused):
    """A known token without the scope, or without it in this channel."""


class NotFound(Refused):
    """What was named does not exist."""


class VersionConflict(Refused):
    """The message is not in the version that was expected."""

    @property
    def current(self) -> int:
        return int(self.details.get("current") or self.body.get("current_version") or 0)

    @property
    def expected(self) -> int:
        return int(self.details.get("expected") or 0)


class AlreadyExists(Refused):
    """The name is taken; `details` has the id of what has it."""


class KeyReused(Refused):
    """This idempotency key belongs to another request."""


class RateLimited(Refused):
    """Too many requests, and more patience than the client was given."""


class HubBusy(Refused):
    """The hub can't do it now: starting, stopping, or too much to do."""


class StorageFull(HubBusy):
    """The hub's disk is full: reading works, writing resumes when there is space."""


BY_CODE: dict[str, tuple[int, type[Refused]]] = {
    "INVALID_INPUT": (400, InvalidInput),
    "PAYLOAD_TOO_LARGE": (400, PayloadTooLarge),
    "CROSS_CHANNEL_MOVE": (400, CrossChannelMove),
    "UNAUTHORIZED": (401, TokenRejected),
    "FORBIDDEN": (403, NotAllowed),
    "NOT_FOUND": (404, NotFound),
    "VERSION_CONFLICT": (409, VersionConflict),
    "ALREADY_EXISTS": (409, AlreadyExists),
    "IDEMPOTENCY_KEY_REUSED": (422, KeyReused),
    "RATE_LIMITED": (429, RateLimited),
    "SERVICE_UNAVAILABLE": (503, HubBusy),
    "STORAGE_FULL": (503, StorageFull),
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
    """The error of an answer. Status 0: of an item in a batch, which has none of its own."""
    usual, kind = BY_CODE.get(str(body.get("code") or ""), (500, None))
    status = status or usual
    return (kind or BY_STATUS.get(status, Refused))(status, body, retry_after)

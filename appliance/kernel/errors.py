"""The eight kinds of failure, and the one shape in which every one is told.

    ApplianceError
    ├── Invalid          400  the request is wrong; sending it again changes nothing
    ├── Unauthenticated  401  no credential, or one nobody knows
    ├── Forbidden        403  a known credential without the scope
    ├── Missing          404  the thing named does not exist
    ├── Conflict         409  the thing exists, in another state than expected
    ├── Lost             409  a lease or precondition the caller once had
    ├── Exhausted        429  a limit of the caller's is used up
    └── Unavailable      503  this process can't do it now; try again

A subsystem derives its own errors from these in its `wire.py`. What a kind means
on HTTP, on a socket and as an exit code is decided once each, in `web/errors.py`,
`web/socket.py` and `cli.py`.
"""

from typing import Any, ClassVar


class ApplianceError(Exception):
    """A failure told to a client: machine code, sentence, hint.

    message  one sentence for a person, without secrets, paths or user content
    details  JSON-ready facts about this occurrence
    hint     what to do next, preferably a command; never empty, a kind has one for its own
    extra    keys put beside `error` in the body (hub spec: `current_version`)
    retry_after  seconds after which the same request may succeed, or None
    """

    kind: ClassVar[str] = "internal"
    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int | None] = None
    sentence: ClassVar[str] = "internal error"
    advice: ClassVar[str] = "agentlip doctor; the log in .agentlip/logs tells what happened"

    def __init__(
        self,
        message: str | None = None,
        *,
        details: dict[str, Any] | None = None,
        hint: str | None = None,
        extra: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.message = message or self.sentence
        self.details = details or {}
        self.hint = hint or self.advice
        self.extra = extra or {}
        self.retry_after = retry_after
        super().__init__(self.message)


class Invalid(ApplianceError):
    kind = "invalid"
    code = "INVALID_INPUT"
    sentence = "invalid input"
    advice = "what is taken: GET /api/v1/openapi.json, or agentlip COMMAND --help"


class Unauthenticated(ApplianceError):
    kind = "unauthenticated"
    code = "UNAUTHORIZED"
    sentence = "missing or invalid token"
    advice = "send 'Authorization: Bearer TOKEN'; the token is in .agentlip/token of the workspace"


class Forbidden(ApplianceError):
    kind = "forbidden"
    code = "FORBIDDEN"
    sentence = "this token may not do that"
    advice = "agentlip token list shows the scopes and channels of each token"


class Missing(ApplianceError):
    kind = "missing"
    code = "NOT_FOUND"
    sentence = "not found"
    advice = "agentlip channel list; agentlip topic list --channel NAME"


class Conflict(ApplianceError):
    kind = "conflict"
    code = "CONFLICT"
    sentence = "conflict"
    advice = "look at what is there now, then decide again"


class Lost(ApplianceError):
    kind = "lost"
    code = "LOST"
    sentence = "no longer held"
    advice = "nothing to do: somebody else has it, or it is done"


class Exhausted(ApplianceError):
    kind = "exhausted"
    code = "RATE_LIMITED"
    sentence = "rate limit exceeded"
    advice = "wait as long as retry_after says, then send the same request again"


class Unavailable(ApplianceError):
    kind = "unavailable"
    code = "SERVICE_UNAVAILABLE"
    sentence = "temporarily unavailable"
    advice = "wait as long as Retry-After says, then send the same request again"

    def __init__(self, message: str | None = None, **more: Any) -> None:
        more.setdefault("retry_after", 1.0)
        super().__init__(message, **more)


class StorageFull(Unavailable):
    code = "STORAGE_FULL"
    sentence = "the disk is full; writing is paused, reading goes on"
    advice = "free space on the data directory's disk; writing resumes by itself"


class PayloadTooLarge(Invalid):
    """A body, a frame or a field beyond its limit (hub spec §0.8: 400)."""

    code = "PAYLOAD_TOO_LARGE"
    sentence = "the request body is too large"
    advice = "send less at once; all limits: docs/settings.md"


KINDS: tuple[type[ApplianceError], ...] = (
    Invalid,
    Unauthenticated,
    Forbidden,
    Missing,
    Conflict,
    Lost,
    Exhausted,
    Unavailable,
)


class KeyReused(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    sentence = "this idempotency key was used with another request"
    advice = "use a new key for a new request; retry with the same body"

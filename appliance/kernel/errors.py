"""The eight kinds of errors, and the class from which all errors derive.

    ApplianceError
    ├── Invalid          400  the request is wrong; sending it again changes nothing
    ├── Unauthenticated  401  no credential, or an unknown one
    ├── Forbidden        403  a valid credential without the scope
    ├── Missing          404  the named thing does not exist
    ├── Conflict         409  the thing is in another state than expected
    ├── Lost             409  the caller no longer has the lease or precondition
    ├── Exhausted        429  a limit of the caller has been reached
    └── Unavailable      503  temporarily impossible; try again

A subsystem derives its errors from these classes in `wire.py`. `web/socket.py` and `cli_support.py`
map the kinds to close codes and exit codes.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, ClassVar


def fill_in(hint: str, values: Mapping[str, Any]) -> str:
    """Replace a hint's placeholders by the values that are known: JOB by the value `job`."""
    return re.sub(
        r"\b[A-Z][A-Z_]+\b",
        lambda word: shlex.quote(str(values.get(word[0].lower()) or word[0])),
        hint,
    )


class ApplianceError(Exception):
    """An error for a client: code, message, hint.

    message  what happened, for a person, without secrets, paths or user content
    details  facts about this occurrence that can be encoded as JSON
    hint     what to do next, preferably a command; never empty, each kind has a default, whose
             placeholders are filled from `details`
    extra    keys beside `error` in the body (hub spec: `current_version`)
    retry_after  seconds after which the same request may succeed, or None
    """

    kind: ClassVar[str] = "internal"
    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    default_message: ClassVar[str] = "internal error"
    default_hint: ClassVar[str] = "agentlip doctor; details are in the log, .agentlip/logs"

    def __init__(
        self,
        message: str | None = None,
        *,
        details: dict[str, Any] | None = None,
        hint: str | None = None,
        extra: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.message = message or self.default_message
        self.details = details or {}
        self.hint = hint or fill_in(self.default_hint, self.details)
        self.extra = extra or {}
        self.retry_after = retry_after
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without `__init__`, whose arguments differ between subclasses."""
        return BaseException.__new__, (type(self), *self.args), self.__dict__

    def to_body(self) -> dict[str, Any]:
        """Return a refused request's body. `extra` can't replace the body's keys."""
        body = {"error": self.message, "code": self.code, "details": self.details}
        body["hint"] = self.hint
        return body | self.extra | body

    def to_item_body(self) -> dict[str, Any]:
        """Return a refused item's body, which has no header that says when to retry."""
        when = {} if self.retry_after is None else {"retry_after": self.retry_after}
        return self.to_body() | when


class Invalid(ApplianceError):
    kind = "invalid"
    status = 400
    code = "INVALID_INPUT"
    default_message = "invalid input"
    default_hint = "see GET /api/v1/openapi.json, or agentlip COMMAND --help"


class Unauthenticated(ApplianceError):
    """`guess`: the refused secret was in the body, where the guard does not see it."""

    guess: ClassVar[bool] = False
    kind = "unauthenticated"
    status = 401
    code = "UNAUTHORIZED"
    default_message = "missing or invalid token"
    default_hint = "send 'Authorization: Bearer TOKEN'; the token is in .agentlip/token"


class Forbidden(ApplianceError):
    kind = "forbidden"
    status = 403
    code = "FORBIDDEN"
    default_message = "the token lacks the scope for this request"
    default_hint = "ask an admin, for whom the command is: agentlip token list"


def refuse_scope(scope: str | None) -> Forbidden:
    """Return the error for a token that lacks a scope, with advice that its owner can follow."""
    hint = f"ask an admin for a token: agentlip token create --name NAME --scope {scope}"
    return Forbidden(f"the token lacks the scope {scope}", details={"scope": scope}, hint=hint)


class Missing(ApplianceError):
    kind = "missing"
    status = 404
    code = "NOT_FOUND"
    default_message = "not found"
    default_hint = "agentlip channel list; agentlip topic list --channel NAME"


class Conflict(ApplianceError):
    kind = "conflict"
    status = 409
    code = "CONFLICT"
    default_message = "conflict"
    default_hint = "read the current state, then try again"


class Lost(ApplianceError):
    kind = "lost"
    status = 409
    code = "LOST"
    default_message = "the lease is no longer held"
    default_hint = "nothing to do: another consumer has the work, or it is done"


class Exhausted(ApplianceError):
    kind = "exhausted"
    status = 429
    code = "RATE_LIMITED"
    default_message = "rate limit exceeded"
    default_hint = "wait `retry_after` seconds, then send the same request again"


class Unavailable(ApplianceError):
    kind = "unavailable"
    status = 503
    code = "SERVICE_UNAVAILABLE"
    default_message = "temporarily unavailable"
    default_hint = "wait the seconds in Retry-After, then send the same request again"

    def __init__(self, message: str | None = None, **more: Any) -> None:
        more.setdefault("retry_after", 1.0)
        super().__init__(message, **more)


class OutOfMemory(Unavailable):
    code = "OUT_OF_MEMORY"
    default_message = "the operating system gives this process no more memory or threads"
    default_hint = (
        "ulimit -a; free -m; in a container, raise its memory and process limits; or "
        "send less at once"
    )


class StorageFull(Unavailable):
    code = "STORAGE_FULL"
    default_message = "the disk is full: writes are refused, reads still work"
    default_hint = "free space on the data directory's disk; writes then resume"


class FileSystemReadOnly(StorageFull):
    """Writes pause as on a full disk, but space does not help."""

    code = "FILE_SYSTEM_READ_ONLY"
    default_message = "the file system is read-only: writes are refused, reads still work"
    default_hint = "findmnt -T .agentlip; mount it for writing, and writes resume"


class PayloadTooLarge(Invalid):
    """A body, frame or field is larger than its limit (hub spec §0.8: 400)."""

    code = "PAYLOAD_TOO_LARGE"
    default_message = "the request body is too large"
    default_hint = "send less at once; docs/reference/settings.md lists the limits"


class CursorBeyondEnd(Conflict):
    """The client's cursor belongs to another history, such as the one before a restore."""

    code = "CURSOR_BEYOND_END"
    default_message = "the cursor is beyond the newest event"
    default_hint = "start again from 0, or from replay_until to skip the history"


def check_cursor(after: int, head: int, epoch: str | None = None) -> None:
    """Raise CursorBeyondEnd if the cursor is greater than the newest number, `head`."""
    if after > head:
        more = {} if epoch is None else {"epoch": epoch}
        raise CursorBeyondEnd(details={"after": after, "replay_until": head, **more})


class KeyReused(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    default_message = "the idempotency key was used with a different request"
    default_hint = "use a new key for a new request, and the same body for a retry"

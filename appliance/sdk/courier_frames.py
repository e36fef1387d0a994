"""Envelopes, and the frames in which the courier sends and refuses them."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import random_id
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.sdk.discovery import Endpoint

Env = dict[str, Any]
Locate = Callable[[], Endpoint]
DIGITS_MAX = 4_000  # longer integers cannot be converted by Python
ERROR_CHARACTERS_MAX = 1_000  # in a nack's text; the courier refuses longer ones
RECONNECT = RetrySettings(initial_seconds=0.2, max_seconds=10.0)


class ErrorFrame(msgspec.Struct, frozen=True):
    """An error frame's content."""

    code: int = 0
    message: str = ""
    name: str = ""
    seq: int | None = None
    count: int = 1  # number of envelopes concerned, beginning with `seq`
    id: str | None = None
    field: str | None = None
    retry_after: float | None = None
    hint: str = ""


class CourierFrame(msgspec.Struct, frozen=True):
    """A frame. `deliver`: an envelope, delivered the `attempt`-th time, or a list with
    `attempts`. These numbers are missing if all are 1."""

    accepted: int | None = None
    error: ErrorFrame | None = None
    deliver: Any = None
    attempt: int = 1
    attempts: list[int] = []


class EnvelopeRefused(ApplianceError):
    """The appliance rejected an envelope; `details` has its error."""

    kind = "invalid"
    code = "ENVELOPE_REFUSED"
    default_message = "the appliance rejected the envelope"
    default_hint = "details.code is the reason: docs/reference/errors.md explains the codes"

    def __init__(self, error: ErrorFrame, id_: str = "") -> None:
        super().__init__(
            error.message or None,
            details={"status": error.code, "code": error.name, "id": id_},
            hint=error.hint,
            retry_after=error.retry_after,
        )
        self.http_status = error.code


_frame = msgspec.json.Decoder(CourierFrame).decode


def read_frame(message: bytes | str) -> CourierFrame:
    """Decode a frame. Numbers such as 1e400 need the slower decoder, which reads infinity. A
    consumer that failed on such a payload would receive that payload again and again."""
    try:
        return _frame(message)
    except msgspec.ValidationError:
        return msgspec.convert(json.loads(message, parse_int=_whole), CourierFrame)


def _whole(digits: str) -> float:
    return float(digits) if len(digits) > DIGITS_MAX else int(digits)


def envelope(type_: str, payload: Any, sender: str | None = None, **more: Any) -> Env:
    """Return a new envelope with an id and a timestamp; `more` are other fields (tags, headers,
    …)."""
    now = datetime.now(UTC)
    made: Env = {
        "id": more.pop("id", None) or f"e-{random_id()}",
        "ts": f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z",
        "type": type_,
        "payload": payload,
    }
    if sender is not None:
        made["from"] = sender
    return {**made, **{name: value for name, value in more.items() if value is not None}}


def key_of(env: Env) -> str:
    """Stream and id: an envelope's id is unique in its stream only."""
    return f"{env.get('to')}\0{env['id']}"


def is_final_error(error: ErrorFrame) -> bool:
    """Return whether every further attempt at the same subscription would fail too."""
    return error.id is None and error.code in (401, 403, 404)


def error_text(error: BaseException) -> str:
    """Return the type and message that a handler raised, as a nack may contain them."""
    text = f"{type(error).__name__}: {error}"
    return text[:ERROR_CHARACTERS_MAX].encode("utf-8", "replace").decode()


def backoff_seconds(attempt: int) -> float:
    return delay_seconds(RECONNECT, attempt, random.random())

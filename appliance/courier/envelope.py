"""From an envelope's bytes to what the queue needs of it. Pure; bytes go on as they came."""

import re
from itertools import accumulate
from typing import Any

import msgspec

from appliance.courier.item import DEFAULT_PRIORITY, Options
from appliance.courier.ring import PLAIN
from appliance.courier.wire import Envelope, InvalidEnvelope
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.web.body import refuse_field

_decode = msgspec.json.Decoder(Envelope).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
encode = msgspec.json.Encoder().encode

# Decoders stop near 1,000, the sooner the deeper they are called: what one of them passes
# another must be able to read, here and at the consumer.
NESTING_MAX = 500
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_nul = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000").search
_strings = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_no_brackets = bytes(one for one in range(256) if one not in STEPS)


class Parsed:
    """An envelope on its way into a stream."""

    __slots__ = ("body", "id", "options", "type")

    def __init__(self, id_: str, body: bytes, options: Options, type_: str) -> None:
        self.id = id_
        self.body = body
        self.options = options
        self.type = type_


def parse(raw: Any, to: str, bytes_max: int, where: str = "envelope") -> Parsed:
    """`raw` checked, and its `to` made the stream it goes to; raises naming the field."""
    body = bytes(raw)
    if len(body) > bytes_max:
        raise PayloadTooLarge(
            f"{where}: more than {bytes_max} bytes",
            details={"field": where, "bytes": len(body), "limit": bytes_max},
            hint="put the payload elsewhere and send a reference",
        )
    try:
        meta = _decode(body)
    except msgspec.ValidationError as error:
        raise _named(str(error), where) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidEnvelope(f"{where}: not a JSON object", details={"field": where}) from None
    if len(body) > 2 * NESTING_MAX or b"\\u0000" in body:  # else there is nothing to find
        _check_text(body, where)
    id_ = meta.id
    if not id_.isprintable():
        raise InvalidEnvelope(
            f"{where}.id: control characters are not allowed", details={"field": f"{where}.id"}
        )
    if meta.to != to:
        body = _addressed(body, meta, to)
    return Parsed(id_, body, _options(meta), meta.type)


def _options(meta: Envelope) -> Options:
    if (
        meta.priority is None
        and meta.partition_key is None
        and meta.delay_ms is None
        and meta.ttl_ms is None
    ):
        return PLAIN
    priority = DEFAULT_PRIORITY if meta.priority is None else meta.priority
    return Options(priority, meta.partition_key, meta.delay_ms or 0, meta.ttl_ms or 0)


def _addressed(body: bytes, meta: Envelope, to: str) -> bytes:
    """The same envelope with `to` filled in (courier contract §3)."""
    if meta.to is None and b'"to"' not in body:
        return b'{"to":%b,%b' % (encode(to), body.lstrip()[1:])
    return encode({**_decode_raw(body), "to": to})


def as_dict(body: bytes) -> dict[str, Any]:
    """All of it; Invalid when a number in its payload is beyond what can be computed with."""
    try:
        return _decode_any(body)
    except msgspec.DecodeError as error:
        raise InvalidEnvelope(f"envelope: {error}", details={"field": "envelope"}) from None


def meta_of(body: bytes) -> Envelope:
    """What is read of an accepted envelope, without its payload."""
    return _decode(body)


def nesting(body: bytes) -> int:
    """How deep the arrays and objects of this JSON stand in each other."""
    brackets = _strings.sub(b"", body).translate(None, _no_brackets)
    return max(accumulate(map(STEPS.__getitem__, brackets)), default=0)


def _check_text(body: bytes, where: str) -> None:
    problem = ""
    if b"\\u0000" in body and _nul(body):
        problem = "text must not contain NUL"
    elif body.count(b"[") + body.count(b"{") > NESTING_MAX and nesting(body) > NESTING_MAX:
        problem = f"nested deeper than {NESTING_MAX}"
    if problem:
        raise InvalidEnvelope(f"{where}: {problem}", details={"field": where, "problem": problem})


def _named(problem: str, where: str) -> InvalidEnvelope:
    try:
        refuse_field(problem)
    except Invalid as error:
        field = error.details["field"]
        name = f"{where}.{field}" if field else where
        return InvalidEnvelope(
            f"{name}: {error.details['problem']}",
            details={"field": name, "problem": error.details["problem"]},
        )

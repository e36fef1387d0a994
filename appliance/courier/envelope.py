"""Parses and validates envelopes. Pure; the bytes are passed on as they came."""

import re
from itertools import accumulate
from typing import Any

import msgspec

from appliance.courier.item import DEFAULT_PRIORITY, DeliveryOptions
from appliance.courier.wire import Envelope, InvalidEnvelope
from appliance.kernel import caller
from appliance.kernel.blank import is_printable
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.web.body import refuse_field

_decode = msgspec.json.Decoder(Envelope).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
encode = msgspec.json.Encoder().encode

# Decoders give up near 1,000 levels, and earlier when called deep in the stack. Every later
# decoder, including the consumer's, must be able to read an accepted envelope.
BYTES_MAX = 256 * 1024  # one envelope's size; large data is elsewhere
NESTING_MAX = 500
_nul = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000").search
_strings = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_others = bytes(byte for byte in range(256) if byte not in b"[]{}")
_steps = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")  # 1 and -1


class ParsedEnvelope(msgspec.Struct, frozen=True, gc=False):
    """A validated envelope that is not in a stream yet."""

    id: str
    body: bytes
    options: DeliveryOptions
    type: str


def parse(raw: Any, to: str, where: str = "envelope") -> ParsedEnvelope:
    """Validate `raw` and set its `to` to the stream. Errors name the field."""
    body = bytes(raw)
    if len(body) > BYTES_MAX:
        raise PayloadTooLarge(
            f"{where}: more than {BYTES_MAX} bytes",
            details={"field": where, "bytes": len(body), "limit": BYTES_MAX},
            hint="send a reference to the payload",
        )
    try:
        meta = _decode(body)
    except msgspec.ValidationError as error:
        raise _field_error(str(error), where) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidEnvelope(f"{where}: not a JSON object", details={"field": where}) from None
    if len(body) > 2 * NESTING_MAX or b"\\u0000" in body:  # otherwise neither check can fail
        _check_text(body, where)
    id_ = meta.id
    if not is_printable(id_):
        raise InvalidEnvelope(
            f"{where}.id: control characters are not allowed", details={"field": f"{where}.id"}
        )
    if meta.to != to:
        body = _address(body, meta, to)
    trace = caller.traceparent()
    if trace is not None and "traceparent" not in (meta.headers or {}):
        body = _with_trace(body, meta, trace)
    return ParsedEnvelope(id_, body, _options(meta), meta.type)


def _options(meta: Envelope) -> DeliveryOptions:
    priority = DEFAULT_PRIORITY if meta.priority is None else meta.priority
    return DeliveryOptions(priority, meta.partition_key, meta.delay_ms or 0, meta.ttl_ms or 0)


def _address(body: bytes, meta: Envelope, to: str) -> bytes:
    """Return the same envelope with `to` filled in (courier contract §3)."""
    if meta.to is None and b'"to"' not in body:
        return b'{"to":%b,%b' % (encode(to), body.lstrip()[1:])
    return encode({**_decode_raw(body), "to": to})


def _with_trace(body: bytes, meta: Envelope, trace: str) -> bytes:
    headers = _decode_raw(_decode_raw(body)["headers"]) if meta.headers else {}
    return encode({**_decode_raw(body), "headers": {**headers, "traceparent": trace}})


def as_dict(body: bytes) -> dict[str, Any]:
    """Return the whole envelope. Raises if a number in the payload is out of range."""
    try:
        return _decode_any(body)
    except msgspec.DecodeError as error:
        raise InvalidEnvelope(f"envelope: {error}", details={"field": "envelope"}) from None


def meta_of(body: bytes) -> Envelope:
    """Return the fields that the courier reads from an accepted envelope."""
    return _decode(body)


def nesting(body: bytes) -> int:
    """Return how deep arrays and objects nest in this JSON."""
    steps = _strings.sub(b"", body).translate(_steps, _others)
    if not steps:
        return 0
    outer = steps.replace(b"\x01\xff", b"")  # without the innermost level, often the largest part
    return 1 + max(accumulate(memoryview(outer).cast("b")), default=0)


def _check_text(body: bytes, where: str) -> None:
    problem = ""
    if b"\\u0000" in body and _nul(body):
        problem = "text must not contain NUL"
    elif body.count(b"[") + body.count(b"{") > NESTING_MAX and nesting(body) > NESTING_MAX:
        problem = f"nested deeper than {NESTING_MAX}"
    if problem:
        raise InvalidEnvelope(f"{where}: {problem}", details={"field": where, "problem": problem})


def _field_error(problem: str, where: str) -> InvalidEnvelope:
    try:
        refuse_field(problem)
    except Invalid as error:
        field = error.details["field"]
        name = f"{where}.{field}" if field else where
        return InvalidEnvelope(
            f"{name}: {error.details['problem']}",
            details={"field": name, "problem": error.details["problem"]},
        )

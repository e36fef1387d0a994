"""From an envelope's bytes to what the queue needs of it. Pure; bytes go on as they came."""

from typing import Any

import msgspec

from appliance.courier.item import DEFAULT_PRIORITY, Options
from appliance.courier.ring import PLAIN
from appliance.courier.wire import Envelope, InvalidEnvelope
from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.web.body import refuse_field

_decode = msgspec.json.Decoder(Envelope).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
encode = msgspec.json.Encoder().encode


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
    try:
        meta = _decode(raw)
    except msgspec.ValidationError as error:
        raise _named(str(error), where) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidEnvelope(f"{where}: not a JSON object", details={"field": where}) from None
    id_ = meta.id
    if not id_.isprintable():
        raise InvalidEnvelope(
            f"{where}.id: control characters are not allowed", details={"field": f"{where}.id"}
        )
    body = bytes(raw)
    if len(body) > bytes_max:
        raise PayloadTooLarge(
            f"{where}: more than {bytes_max} bytes",
            details={"field": where, "bytes": len(body), "limit": bytes_max},
            hint="put the payload elsewhere and send a reference",
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
    return encode({**_decode_any(body), "to": to})


def as_dict(body: bytes) -> dict[str, Any]:
    return _decode_any(body)


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

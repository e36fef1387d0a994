"""Encodes a JSON value in canonical bytes, for hashing and signing: RFC 8785 (JCS)."""

from typing import Any

import rfc8785

from appliance.kernel.errors import Invalid

DEPTH_MAX = 128  # nested arrays and objects


class NotCanonical(Invalid):
    default_hint = "use finite numbers, text without lone surrogates, and at most 128 nested levels"


def canonical(value: Any) -> bytes:
    """Return UTF-8 JSON by RFC 8785: keys by UTF-16 code units, ECMAScript numbers, shortest
    escapes.

    Integers beyond 53 bits are written as doubles, which is how other readers parse them. Raises
    NotCanonical for values without a JSON form, and for more than DEPTH_MAX nested levels: the
    recursion limit differs between processes, but all must accept the same values.
    """
    try:
        return rfc8785.dumps(_as_doubles(value, DEPTH_MAX))
    except (rfc8785.CanonicalizationError, UnicodeError, OverflowError) as error:
        raise NotCanonical(f"the value has no canonical JSON form: {error}") from None


def _as_doubles(value: Any, depth_left: int) -> Any:
    match value:
        case bool():
            return value
        case int() if abs(value) >= 2**53:
            return float(value)
        case dict() | list() | tuple() if depth_left <= 0:
            raise NotCanonical(f"the value has more than {DEPTH_MAX} nested levels")
        case dict():
            return {key: _as_doubles(item, depth_left - 1) for key, item in value.items()}
        case list() | tuple():
            return [_as_doubles(item, depth_left - 1) for item in value]
    return value

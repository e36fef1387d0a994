"""The one byte form of a JSON value that is hashed or signed: RFC 8785 (JCS)."""

from typing import Any

import rfc8785

from appliance.kernel.errors import Invalid

DEPTH_MAX = 128  # arrays and objects in each other


class NotCanonical(Invalid):
    advice = "numbers must be finite, text free of lone surrogates, and nothing nested too deeply"


def canonical(value: Any) -> bytes:
    """UTF-8 JSON by RFC 8785: keys by UTF-16 code units, ECMAScript numbers, shortest escapes.

    Integers beyond 53 bits are written as the doubles that they would be for any other
    reader. Raises NotCanonical where JSON has no form for the value at all, and for what is
    nested more than DEPTH_MAX deep: a limit of its own, for the room that is left for a
    recursion differs from one process to the next, and all have to judge alike.
    """
    try:
        return rfc8785.dumps(_as_doubles(value, DEPTH_MAX))
    except (rfc8785.CanonicalizationError, UnicodeError, OverflowError) as error:
        raise NotCanonical(f"no canonical JSON: {error}") from None


def _as_doubles(value: Any, room: int) -> Any:
    match value:
        case bool():
            return value
        case int() if abs(value) >= 2**53:
            return float(value)
        case dict() | list() | tuple() if room <= 0:
            raise NotCanonical(f"no canonical JSON: nested more than {DEPTH_MAX} deep")
        case dict():
            return {key: _as_doubles(item, room - 1) for key, item in value.items()}
        case list() | tuple():
            return [_as_doubles(item, room - 1) for item in value]
    return value

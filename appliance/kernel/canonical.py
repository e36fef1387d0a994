"""The one byte form of a JSON value that is hashed or signed: RFC 8785 (JCS)."""

from typing import Any

import rfc8785

from appliance.kernel.errors import Invalid


class NotCanonical(Invalid):
    advice = "numbers must be finite, integers within 53 bits, and text free of lone surrogates"


def canonical(value: Any) -> bytes:
    """UTF-8 JSON by RFC 8785: keys by UTF-16 code units, ECMAScript numbers, shortest escapes.

    Integers beyond 53 bits are written as the doubles that they would be for any other
    reader. Raises NotCanonical where JSON has no form for the value at all.
    """
    try:
        return rfc8785.dumps(_as_doubles(value))
    except (rfc8785.CanonicalizationError, UnicodeError, OverflowError) as error:
        raise NotCanonical(f"no canonical JSON: {error}") from None


def _as_doubles(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() if abs(value) >= 2**53:
            return float(value)
        case dict():
            return {key: _as_doubles(item) for key, item in value.items()}
        case list() | tuple():
            return [_as_doubles(item) for item in value]
    return value

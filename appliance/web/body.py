"""Decodes and validates requests once: from bytes to a struct, with errors by field.

Decoded text is UTF-8 without NUL or lone surrogates, and every integer fits into 64 bits. Code
behind this does not have to check again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect as shapes

from appliance.kernel.errors import Invalid, PayloadTooLarge
from appliance.kernel.turns import PIECE_BYTES, piece
from appliance.web.errors import UnsupportedMediaType

T = TypeVar("T")

INT_MAX = 2**63 - 1
IDEMPOTENCY_KEY_MAX = 255
QUERY_FIELDS_MAX = 100
CHUNK_BYTES = 64 * 1024
# The loop waits while a body is decoded. An empty list is decoded into 20 times its bytes, in 0.1
# µs, and a list's items above the limit are decoded too. So one in this many bytes in the largest
# body may be a bracket, a comma or a colon between values.
BYTES_FOR_EACH_MARK = 8
WITHOUT_NUL = "remove U+0000"

_AT = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_FIELD = re.compile(r"\.(\w+)")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`")
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b"[]{},:")
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 19
_NUMBER = re.compile(rb"((?<![.eE+])(?<![eE]-)[0-9]++(?![.eE]))?[0-9]*")  # 1: if an integer
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_BARE_KEY = re.compile(r"[\x21-\x7e]+")
_QUOTED_KEY = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


class BodyPlan:
    """A plan that reads and decodes one operation's bodies.

    `each` is the only field, a list, whose items are validated separately. Unless `strict`, strings
    with a number are numbers where the struct has one.
    """

    def __init__(
        self, kind: Any, bytes_max: int, each: str | None = None, *, strict: bool = True
    ) -> None:
        self.bytes_max, self._kind = bytes_max, kind
        self._checks_values = each is None  # `Items` checks each one
        decoder = Items(kind, each) if each else msgspec.json.Decoder(kind, strict=strict)
        self._decode = decoder.decode
        # With the first body: all operations together would be a tenth of a start.
        self._has_numbers = cache(lambda: has_numbers(shapes.type_info(kind)))
        self._marks_max = max(PIECE_BYTES, bytes_max // BYTES_FOR_EACH_MARK)

    def read(self, environ: Mapping[str, Any]) -> bytes:
        """Read the whole body. Raises an error before more than the limit is read."""
        declared = environ.get("CONTENT_LENGTH")
        if declared:
            length = int(declared)  # checked by the parser
        elif environ.get("HTTP_TRANSFER_ENCODING"):
            length = None
        else:
            length = 0
        if length == 0:
            raise _no_body()
        check_type(environ)
        if length is not None and length > self.bytes_max:
            raise _too_large(self.bytes_max)
        raw = _read(environ["wsgi.input"], self.bytes_max, length)
        if length is not None and len(raw) < length:
            raise Invalid("the body ended before its Content-Length")
        return raw

    def decode(self, raw: bytes) -> Any:
        """Return the decoded struct. Raises Invalid with the field's name."""
        if len(raw) <= PIECE_BYTES:
            return self._decode_checked(raw)
        limit = self._marks_max
        with piece():
            if len(raw) > limit and count_marks(raw, limit) > limit:
                raise PayloadTooLarge(f"the body has more than {limit} brackets, commas and colons")
            return self._decode_checked(raw)

    def _decode_checked(self, raw: bytes) -> Any:
        if not raw.isascii():
            decode_json(bytes.decode, raw, "the body")  # also checks skipped parts
        command = decode_json(self._decode, raw, "the body", self._kind)
        if self._checks_values:
            check_values(raw, self._has_numbers())
        return command


class Items:
    """A plan that decodes list items one by one. An invalid item becomes an error."""

    def __init__(self, kind: Any, field: str) -> None:
        self._kind, self._field = kind, field
        (list_field,) = shapes.type_info(kind).fields  # type: ignore[attr-defined]
        assert list_field.encode_name == field, "the list is all there is"
        kinds = list_field.type
        limits = msgspec.Meta(min_length=kinds.min_length, max_length=kinds.max_length)
        several = Annotated[list[msgspec.Raw], limits]
        outside = msgspec.defstruct(f"{kind.__name__}Items", [(field, several)])
        self._outside = msgspec.json.Decoder(outside).decode
        self._item_kind = kinds.item_type.cls
        self._item = msgspec.json.Decoder(self._item_kind).decode
        self._has_numbers = has_numbers(kinds)

    def decode(self, raw: bytes) -> Any:
        items = getattr(self._outside(raw), self._field)
        check_fields(raw, besides=self._field)
        return self._kind([self._decode_item(bytes(item)) for item in items])

    def _decode_item(self, raw: bytes) -> Any:
        try:
            check_values(raw, self._has_numbers)
            return decode_json(self._item, raw, "the item", self._item_kind)
        except Invalid as error:
            return error


class QueryPlan:
    """A plan that decodes one operation's query parameters. Without a struct none are allowed. A
    struct with `ignores_unknown` is for a page to which other programs send browsers."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        fields = getattr(shapes.type_info(kind), "fields", ())
        types = {field.encode_name: field.type for field in fields}
        self._names = set(types)
        self._ignores_unknown = getattr(kind, "ignores_unknown", False)
        self._lists = {name for name in types if _is_list(types[name])}
        self._numbers = {name for name in types if _has_integers(types[name])}
        named = f": {', '.join(sorted(types))}" if types else " no query parameters"
        self._hint = f"this route takes{named}"

    def parse(self, query: str) -> Any:
        """Return the query string's struct; None if the operation has none."""
        values: dict[str, Any] = {}
        for name, value in _pairs(query) if query else ():
            if name not in self._names:
                if self._ignores_unknown:
                    continue
                raise _field_error("unknown query parameter", name, self._hint)
            check_text(value, name)
            if name in self._numbers and not (
                _WHOLE.fullmatch(value) and abs(int(value)) <= INT_MAX
            ):
                raise _field_error("expected a 64-bit integer", name)
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise _field_error("duplicate query parameter", name, "pass it once")
            else:
                values[name] = value
        if self._kind is None:
            return None
        convert = partial(msgspec.convert, type=self._kind, strict=False)
        return decode_json(convert, values, "the query", self._kind)


def check_type(environ: Mapping[str, Any]) -> None:
    """Raise UnsupportedMediaType unless the body is uncompressed JSON in UTF-8."""
    given = environ.get("CONTENT_TYPE", "")
    if given != "application/json":
        media, _, parameters = given.partition(";")
        charset = parameters.strip().lower().replace('"', "").replace(" ", "")
        good = charset in ("", "charset=utf-8", "charset=utf8")
        if media.strip().lower() != "application/json" or not good:
            raise UnsupportedMediaType
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        raise UnsupportedMediaType(
            "compressed bodies are not supported", hint="send the body without Content-Encoding"
        )


def check_text(value: str, field: str) -> str:
    """Return `value`, or raise Invalid if it contains NUL or a lone surrogate."""
    if "\0" in value:
        raise _field_error("text must not contain NUL", field, WITHOUT_NUL)
    try:
        value.encode()
    except UnicodeEncodeError:
        hint = "send complete surrogate pairs"
        raise _field_error("text must be valid Unicode", field, hint) from None
    return value


def check_values(raw: bytes, has_numbers: bool = True) -> None:
    """Raise Invalid for NUL in text and integers beyond 64 bits. `raw` is valid JSON."""
    if b"\\u0000" not in raw and not (has_numbers and _has_long_digits(raw)):
        return  # quick where nothing is wrong
    problem, hint = _find_wrong_value(raw)
    if problem:
        with suppress(msgspec.DecodeError, UnicodeError):  # not an object
            check_fields(raw)
        raise _field_error(problem, "$", hint)


def check_fields(raw: bytes, *, besides: str = "") -> None:
    """Raise Invalid for such values in an object's fields, without the field `besides`."""
    for field, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items():
        problem, hint = ("", "") if field == besides else _find_wrong_value(bytes(value))
        if problem:
            raise _field_error(problem, field, hint)


def _find_wrong_value(raw: bytes) -> tuple[str, str]:
    """Return the error in a value in `raw`, with a remedy; empty: nothing."""
    plain = raw.replace(b"\\\\", b"__")  # the remaining backslashes begin other escapes
    if b"\\u0000" in plain:
        return "text must not contain NUL", WITHOUT_NUL
    if _has_long_digits(plain) and _has_huge_integer(plain):
        return "integers must fit into 64 bits", "send it as a string"
    return "", ""


def _has_long_digits(raw: bytes) -> bool:
    """Return whether 19 digits follow each other. Measured: searching for a pattern takes five
    times as long."""
    return _LONG in raw.translate(_ZEROS)


def _has_huge_integer(plain: bytes) -> bool:
    """Return whether a number is an integer beyond 64 bits. `plain` has no escaped backslashes."""
    plain = plain.replace(b'\\"', b"__")
    zeros, end, quotes = plain.translate(_ZEROS), 0, 0
    while (start := zeros.find(_LONG, end)) >= 0:
        quotes += plain.count(b'"', end, start)
        if quotes % 2:  # in text: continue at the text's end
            end = plain.index(b'"', start)
            continue
        number = _NUMBER.match(plain, start)
        assert number is not None, "it matches everything"
        end, digits = number.end(), number[1]
        negative = plain[start - 1 : start] == b"-"
        if digits and (len(digits) > 19 or int(digits) > INT_MAX + negative):
            return True
    return False


def check_params(params: Mapping[str, str]) -> None:
    """Raise Invalid for NUL and invalid UTF-8 in path parameters."""
    for name, value in params.items():
        if "\0" in value or "�" in value:
            raise _field_error("path parameters must be valid text without NUL", name)


def idempotency_key(header: str | None) -> str | None:
    """Return the key in `Idempotency-Key`, quoted (RFC 8941 string) or not; None without a key."""
    if header is None:
        return None
    text = header.strip()
    quoted = _QUOTED_KEY.fullmatch(text)
    if quoted:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif _BARE_KEY.fullmatch(text) and not text.startswith('"'):
        key = text
    else:
        key = ""
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX:
        raise Invalid(
            f"Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters",
            details={"field": "Idempotency-Key"},
            hint="use a UUID: Idempotency-Key: 5f0c6a4e-2d1b-4c7e-9a3f-8b6d5e4c3a21",
        )
    return key


def refuse_field(problem: str, kind: Any = None) -> NoReturn:
    """Raise Invalid for a validation message, with the field and its path. `kind`: the type that
    has the field, whose choices become the hint."""
    match = _AT.search(problem)
    path = match[1] if match else "$"
    sentence = problem[: match.start()] if match else problem
    for pattern in (_MISSING, _UNKNOWN):
        named = pattern.match(sentence)
        if named:
            path = f"{path}.{named[1]}"
    choices = _choices(kind, path) if sentence.startswith("Invalid enum value") else []
    hint = f"one of: {', '.join(choices)}" if choices else None
    raise _field_error(sentence[:1].lower() + sentence[1:], path, hint)


def _choices(kind: Any, path: str) -> list[str]:
    """Return the values that the field at `path` may have."""
    parts = list(_alternatives(shapes.type_info(kind)))
    for name in _FIELD.findall(path):
        fields = [field for part in parts for field in getattr(part, "fields", ())]
        named = [field.type for field in fields if field.encode_name == name]
        parts = [part for each in named for part in _alternatives(each)]
    literals = [part.values for part in parts if isinstance(part, shapes.LiteralType)]
    return [str(value) for values in literals for value in values]


def _alternatives(kind: shapes.Type) -> Iterator[shapes.Type]:
    """Yield the types that a value or a list's item may have."""
    kind = _bare(kind)
    if isinstance(kind, shapes.UnionType):
        for part in kind.types:
            yield from _alternatives(part)
    elif isinstance(kind, shapes.ListType | shapes.VarTupleType | shapes.SetType):
        yield from _alternatives(kind.item_type)
    else:
        yield kind


def has_numbers(kind: shapes.Type) -> bool:
    """Return whether a body with this type may contain an integer.

    Measured: the search for long numbers takes 15 µs per kilobyte, and decoding 0.5 µs.
    """
    # Raw JSON is passed on without decoding its numbers.
    plain = shapes.StrType | shapes.BoolType | shapes.NoneType | shapes.FloatType | shapes.RawType
    texts = shapes.EnumType | shapes.LiteralType
    return not all(isinstance(part, plain | texts) for part in _parts(kind))


def _has_integers(kind: shapes.Type) -> bool:
    return any(isinstance(part, shapes.IntType) for part in _parts(kind))


def _parts(kind: shapes.Type) -> Iterator[shapes.Type]:
    """Yield the types that a value with this type contains, without structs, unions and lists."""
    waiting, seen = [kind], set[Any]()
    while waiting:
        for part in _alternatives(waiting.pop()):
            if not isinstance(part, shapes.StructType):
                yield part
            elif part.cls not in seen:
                seen.add(part.cls)
                waiting += [field.type for field in part.fields]


def count_marks(raw: bytes, limit: int) -> int:
    """Count brackets, commas and colons outside this JSON's strings. Stops above the limit, so
    that the strings are few or long."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = inside = 0
    for start in range(0, len(plain), CHUNK_BYTES):
        parts = plain[start : start + CHUNK_BYTES].split(b'"')
        count += len(b"".join(parts[inside::2]).translate(None, _NO_MARKS))
        if count > limit:
            break
        inside ^= (len(parts) + 1) % 2
    return count


def _bare(kind: shapes.Type) -> shapes.Type:
    while isinstance(kind, shapes.Metadata):
        kind = kind.type
    return kind


def _is_list(kind: shapes.Type) -> bool:
    kind = _bare(kind)
    if isinstance(kind, shapes.UnionType):
        return any(_is_list(inner) for inner in kind.types)
    return isinstance(kind, shapes.ListType | shapes.VarTupleType | shapes.SetType)


def _pairs(query: str) -> Iterable[tuple[str, str]]:
    try:
        return parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        raise Invalid(
            f"the query is not valid UTF-8, or has more than {QUERY_FIELDS_MAX} parameters",
            hint="percent-encode UTF-8 bytes: %C3%A9 is é",
        ) from None


def _read(source: Any, bytes_max: int, length: int | None) -> bytes:
    if length is not None:
        return bytes(source.read(length))
    parts, total = [], 0
    while part := source.read(CHUNK_BYTES):
        total += len(part)
        if total > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
    if not parts:
        raise _no_body()
    return b"".join(parts)


def decode_json(decode: Callable[[Any], T], raw: Any, what: str, kind: Any = None) -> T:
    """Return the result of `decode` for `raw`. Raises Invalid, which names the field and the
    choices that `kind` has, or begins with `what`."""
    # msgspec crashes without memory for a string, whose characters may have four bytes each.
    bytes(4 * len(raw))
    try:
        return decode(raw)
    except msgspec.ValidationError as error:
        refuse_field(str(error), kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _json_error(what, error) from None


def _json_error(what: str, error: Exception) -> Invalid:
    problem = str(error)
    hint = "send JSON in UTF-8 (RFC 8259), without lone surrogates such as \\ud800"
    if isinstance(error, UnicodeError):
        problem = "the text is not valid UTF-8"
    elif isinstance(error, RecursionError):
        problem, hint = "nested too deeply", "use fewer levels, or send it as a string"
    return Invalid(f"{what} is not valid JSON", details={"problem": problem}, hint=hint)


def _no_body() -> Invalid:
    return Invalid(
        "a JSON body is required",
        details={"problem": "empty body"},
        hint="see this route in GET /api/v1/openapi.json",
    )


def _too_large(bytes_max: int) -> PayloadTooLarge:
    return PayloadTooLarge(details={"bytes_max": bytes_max})


def _field_error(problem: str, path: str, hint: str | None = None) -> Invalid:
    path = path if path.startswith("$") else f"$.{path}"
    field = path[2:] if path.startswith("$.") else ""
    return Invalid(
        f"{field}: {problem}" if field else problem,
        details={"field": field, "path": path, "problem": problem},
        hint=hint,
    )

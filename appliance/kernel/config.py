"""Reads settings: a TOML file, then the environment, then flags. The last one wins.

Sections are frozen msgspec structs. Unknown keys are refused with the nearest known one. An
environment variable names a field as `AGENTLIP_<SECTION>__<FIELD>`. The value is read as the
field's type: a text unchanged, a switch also as yes or off, a list as JSON or with commas. An empty
one counts as not set. A field whose name ends in `_file` names a file that holds a secret, which
`secret()` reads.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_args, runtime_checkable

import msgspec
from msgspec import inspect as shapes

from appliance.kernel.errors import Invalid
from appliance.kernel.ownership import read_regular

PREFIX = "AGENTLIP_"
_SWITCH = {"true": True, "yes": True, "on": True, "1": True} | dict.fromkeys(
    ("false", "no", "off", "0"), False
)
_BYTES_MAX = 4 << 20  # no settings and no secret are larger
T = TypeVar("T")


class BadSettings(Invalid):
    code = "BAD_SETTINGS"
    default_message = "the settings can't be read"
    default_hint = "agentlip config show"


@runtime_checkable
class ValidatedSection(Protocol):
    """A section with rules about the keys that are set, whatever their values."""

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Check the given keys. Raise BadSettings for keys that break a rule."""
        ...


def load(
    kind: type[T],
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> T:
    """Load the settings for struct `kind`.

    `flags` maps dotted paths (`http.port`) to values; None means that the flag was not given. Raise
    BadSettings with the path to the first wrong or unknown key.
    """
    merged = read_toml(file) if file is not None and file.exists() else {}
    variables = {}
    for names, value in read_environment(environment, kind):
        variables[".".join(names)] = variable = PREFIX + "__".join(names).upper()
        if "\N{REPLACEMENT CHARACTER}" in str(value):
            raise BadSettings(f"settings: {variable}: the text is not valid UTF-8")
        _put(merged, names, value, variable)
    for path, value in (flags or {}).items():
        if value is not None:
            _put(merged, path.split("."), value, path)
    try:
        settings = msgspec.convert(merged, kind)
    except msgspec.ValidationError as error:
        source = _variable_of(str(error), variables)
        raise BadSettings(f"settings: {source}{error}{_suggestion(kind, str(error))}") from None
    for name, given in merged.items():
        section = getattr(settings, name, None)
        if isinstance(section, ValidatedSection):
            section.check_given(given)
    return settings


def read_environment(environment: Mapping[str, str], kind: Any) -> Iterator[tuple[list[str], Any]]:
    """Yield the values that variables name, each with section and field, whether `kind` has them
    or not."""
    for name, text in sorted(environment.items()):
        if name.startswith(PREFIX) and "__" in name and text.strip():
            *path, last = names = name[len(PREFIX) :].lower().split("__")
            types = {field.encode_name: field.type for field in _fields(_struct_at(kind, path))}
            text = text.encode(errors="surrogateescape").decode(errors="replace").strip()
            yield names, _from_text(text, shapes.type_info(types.get(last, Any)))


def secret(path: str, name: str) -> str:
    """Return a secret file's content, without the newline at its end. `name`: the setting,
    variable or option that names the file. Raises BadSettings."""
    try:
        return _text(Path(path)).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "not UTF-8").lower()
        message = f"{name}: can't read the secret file {path}: {reason}"
        raise BadSettings(message, hint=f"ls -ld {shlex.quote(path)}") from None


def read_toml(file: Path) -> dict[str, Any]:
    """Return a settings file's content. Raise BadSettings on failure."""
    try:
        return tomllib.loads(_text(file))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings: {file}: {getattr(error, 'strerror', 0) or error}") from None


def _text(file: Path) -> str:
    return read_regular(file, _BYTES_MAX).decode("utf-8-sig").replace("\r\n", "\n")


def _from_text(text: str, kind: shapes.Type) -> Any:
    """Return the value that people mean by `text` in a field with this type."""
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = text
    kinds = list(_alternatives(kind))
    for each in kinds:
        if isinstance(each, shapes.BoolType) and text.lower() in _SWITCH:
            return _SWITCH[text.lower()]
        if isinstance(each, shapes.LiteralType):
            return next((word for word in each.values if str(word).lower() == text.lower()), value)
        if isinstance(each, shapes.ListType | shapes.VarTupleType) and not isinstance(value, list):
            items = filter(None, map(str.strip, text.split(",")))
            return [_from_text(item, each.item_type) for item in items]
        if isinstance(each, shapes.StrType) and not isinstance(value, str):
            return text
    return value


def _alternatives(kind: shapes.Type) -> Iterator[shapes.Type]:
    while isinstance(kind, shapes.Metadata):
        kind = kind.type
    if isinstance(kind, shapes.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    else:
        yield kind


_AT = re.compile(r" - at `\$\.?([^`\[]*)")


def _variable_of(message: str, variables: Mapping[str, str]) -> str:
    """Return the environment variable that a message is about, with a colon; empty: a file's
    key."""
    at, unknown = _AT.search(message), _UNKNOWN.search(message)
    path = ".".join(filter(None, (at and at[1], unknown and unknown["name"])))
    for names, variable in variables.items():
        if path and f"{names}.".startswith(f"{path}."):
            return f"{variable}: "
    return ""


_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`(?: - at `\$\.?(?P<path>[^`]*)`)?")


def _suggestion(kind: Any, message: str) -> str:
    """Return what to write instead, if the message is about an unknown key and a known one is
    similar."""
    from difflib import get_close_matches

    match = _UNKNOWN.search(message)
    if match is None:
        return ""
    name, path = match["name"], match["path"] or ""
    section = re.sub(r"\[[^]]*\]", "", path)
    inner = _struct_at(kind, section.split(".") if section else [])
    similar = get_close_matches(name, _keys(inner), 1)
    if not similar and not path:
        return ""
    if not similar:  # perhaps the right key in the wrong section
        similar = [
            f"{part}.{name}" for part in _keys(kind) if name in _keys(_struct_at(kind, [part]))
        ]
    return f"; did you mean {similar[0]}?" if similar else ""


def _struct_at(kind: Any, path: list[str]) -> Any:
    """Return the struct that holds the settings at `path`, through lists and optional values."""
    for name in path:
        fields = {field.encode_name: field.type for field in _fields(kind)}
        kind = fields.get(name)
        while kind is not None and not _fields(kind) and get_args(kind):
            kind = next((arg for arg in get_args(kind) if _fields(arg) or get_args(arg)), None)
    return kind


def _fields(kind: Any) -> tuple[Any, ...]:
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return msgspec.structs.fields(kind) if is_struct else ()


def _keys(kind: Any) -> list[str]:
    return [field.encode_name for field in _fields(kind)]


def _put(tree: dict[str, Any], path: list[str], value: Any, source: str) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            raise BadSettings(f"settings: {source}: {name} is a value, not a section")
        tree = branch
    tree[path[-1]] = value

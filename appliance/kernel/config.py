"""Reads settings: a TOML file, then the environment, then flags. The last one wins.

Sections are frozen msgspec structs. Unknown keys are refused; withdrawn_settings.toml has those of
earlier versions and what replaces them. An environment variable names a field as
`AGENTLIP_<SECTION>__<FIELD>`. Its text is read as JSON if it is JSON (numbers, true,
lists), otherwise as a string. A field whose name ends in `_file` names a file that holds a secret,
which `secret()` reads.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_args, runtime_checkable

import msgspec

from appliance.kernel.errors import Invalid
from appliance.kernel.ownership import read_regular

PREFIX = "AGENTLIP_"
_BYTES_MAX = 4 << 20  # no settings and no secret are larger
T = TypeVar("T")


class BadSettings(Invalid):
    code = "BAD_SETTINGS"
    default_message = "the settings can't be read"
    default_hint = "every setting with its default is in ops/agentlip.toml"


@runtime_checkable
class ValidatedSection(Protocol):
    """A section with rules about the keys that are set, whatever their values."""

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raises BadSettings."""
        ...


def load(
    kind: type[T],
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> T:
    """Settings of struct `kind`.

    `flags` maps dotted paths (`http.port`) to values; None means that the flag was not given.
    Raises BadSettings with the path of the first wrong or unknown key.
    """
    merged = read_toml(file) if file is not None and file.exists() else {}
    for names, value in read_environment(environment):
        _put(merged, names, value)
    for path, value in (flags or {}).items():
        if value is not None:
            _put(merged, path.split("."), value)
    try:
        settings = msgspec.convert(merged, kind)
    except msgspec.ValidationError as error:
        raise BadSettings(f"settings: {error}{_suggestion(kind, str(error))}") from None
    for name, given in merged.items():
        section = getattr(settings, name, None)
        if isinstance(section, ValidatedSection):
            section.check_given(given)
    return settings


def read_environment(environment: Mapping[str, str]) -> Iterator[tuple[list[str], Any]]:
    """The values that variables name, each with section and field, whether these are known."""
    for name, text in sorted(environment.items()):
        if name.startswith(PREFIX) and "__" in name:
            yield name[len(PREFIX) :].lower().split("__"), _from_text(text)


def secret(path: str) -> str:
    """The content of a secret's file, without the newline at its end."""
    try:
        return _text(Path(path)).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"settings: can't read the secret file: {error}") from None


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a settings file. Raises BadSettings."""
    try:
        return tomllib.loads(_text(file))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings: {file}: {error}") from None


def _text(file: Path) -> str:
    return read_regular(file, _BYTES_MAX).decode().replace("\r\n", "\n")


def _from_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`(?: - at `\$\.?(?P<path>[^`]*)`)?")


def _suggestion(kind: Any, message: str) -> str:
    """What to write instead, if the message is about a withdrawn key or a known one is similar."""
    match = _UNKNOWN.search(message)
    if match is None:
        return ""
    name, path = match["name"], match["path"] or ""
    section = re.sub(r"\[[^]]*\]", "", path)
    withdrawn = tomllib.loads((files(__package__) / "withdrawn_settings.toml").read_text())
    if name in withdrawn["constants"].get(section, ()):
        return "; now a constant: remove it"
    if replacement := withdrawn["replaced"].get(f"{section}.{name}"):
        return f"; now {replacement}"
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
    """The struct that holds the settings at `path`, through lists and optional values."""
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


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            raise BadSettings(f"settings: {name} is a section, not a value")
        tree = branch
    tree[path[-1]] = value

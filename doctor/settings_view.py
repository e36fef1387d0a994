"""Where the value of each setting comes from: for the operator, and for a support bundle.

Numbers, switches, and words from a fixed set are shown, texts that people wrote only to the
operator. Lists of structs can have secrets in them, so they are always replaced by their kind.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from appliance.kernel.config import PREFIX
from appliance.kernel.ownership import read_regular
from appliance.settings import Settings

DEFAULT, FILE, ENVIRONMENT = "default", "agentlip.toml", "environment"
COMMAND_LINE = "command line"
_FILE_BYTES_MAX = 1024 * 1024


class SettingView(msgspec.Struct, frozen=True):
    """`value`: null if it was taken out; then `kind` says what it was."""

    value: Any
    origin: str
    kind: str = ""


class SettingsView(msgspec.Struct, frozen=True):
    """unknown  keys that no setting has, by origin; their names are not shown
    error    why agentlip.toml can't be read; empty if it can or does not exist
    """

    settings: dict[str, SettingView]
    unknown: dict[str, int]
    error: str = ""


def effective(file: Path, environment: Mapping[str, str], settings: msgspec.Struct) -> SettingsView:
    """The view for the operator of a process that has these settings. What neither the file nor the
    environment explains was given on the command line."""
    shown, raw = view(file, environment)
    sources = {FILE: _flat(raw[0]), ENVIRONMENT: raw[1]}
    current = _flat(msgspec.to_builtins(settings))
    for path, field in _fields():
        origin = shown.settings[path].origin
        given = sources.get(origin, {}).get(path, _default(field))
        if msgspec.to_builtins(msgspec.convert(given, field.type)) != current[path]:
            origin = COMMAND_LINE
        shown.settings[path] = _view(field, current[path], origin, texts=True)
    return shown


def view(file: Path, environment: Mapping[str, str]) -> tuple[SettingsView, list[dict[str, Any]]]:
    """The view, and the given values with their names, in which secrets are looked for."""
    written, error = _read(file)
    from_environment: dict[str, Any] = {}
    unknown = dict.fromkeys((FILE, ENVIRONMENT), 0)
    for name, text in environment.items():
        if name.startswith(PREFIX) and "__" in name:
            from_environment[name[len(PREFIX) :].lower().replace("__", ".", 1)] = _from_text(text)
    fields = dict(_fields())
    settings = {}
    for path, field in fields.items():
        section, _, name = path.partition(".")
        values = written.get(section)
        if path in from_environment:
            settings[path] = _view(field, from_environment[path], ENVIRONMENT)
        elif isinstance(values, dict) and name in values:
            settings[path] = _view(field, values[name], FILE)
        else:
            settings[path] = _view(field, _default(field), DEFAULT)
    unknown[ENVIRONMENT] = len(from_environment.keys() - fields.keys())
    for section, values in written.items():
        names = values if isinstance(values, dict) else {"": values}
        unknown[FILE] += sum(f"{section}.{name}" not in fields for name in names)
    return SettingsView(settings, unknown, error), [written, from_environment]


def texts_of(shown: SettingsView, given: Any) -> set[str]:
    """The texts and the unknown names in given settings that the view does not show."""
    known = {part for path in shown.settings for part in path.split(".")}
    known |= {
        setting.value for setting in shown.settings.values() if isinstance(setting.value, str)
    }
    return _words_in(given) - known


def _words_in(given: Any) -> set[str]:
    if isinstance(given, str):
        return {given}
    if isinstance(given, Mapping):
        names = {part for name in given for part in str(name).split(".")}
        return names.union(*map(_words_in, given.values()))
    return set().union(*map(_words_in, given)) if isinstance(given, list) else set()


def _read(file: Path) -> tuple[dict[str, Any], str]:
    if not file.exists():
        return {}, ""
    try:
        return tomllib.loads(read_regular(file, _FILE_BYTES_MAX).decode()), ""
    except (OSError, UnicodeDecodeError) as error:
        return {}, type(error).__name__
    except tomllib.TOMLDecodeError as error:
        return {}, str(error).rpartition("(")[2].rstrip(")")  # the position, not the text


def _fields() -> list[tuple[str, msgspec.structs.FieldInfo]]:
    return [
        (f"{section.encode_name}.{field.encode_name}", field)
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    ]


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{name}": value
        for section, values in sections.items()
        for name, value in (values.items() if isinstance(values, dict) else ())
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _view(
    field: msgspec.structs.FieldInfo, value: Any, origin: str, *, texts: bool = False
) -> SettingView:
    if value is None or isinstance(value, bool | int | float) or (texts and _is_text(value)):
        return SettingView(value, origin)
    if isinstance(value, str) and (value == _default(field) or value in _words(field.type)):
        return SettingView(value, origin)
    if isinstance(value, str):
        return SettingView(None, origin, "path" if field.name.endswith("_file") else "text")
    try:
        return SettingView(None, origin, f"{type(value).__name__} of {len(value)}")
    except TypeError:
        return SettingView(None, origin, type(value).__name__)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    )


def _words(kind: Any) -> set[Any]:
    """The words that a setting can have, if they are a fixed set."""
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    return {word for inner in get_args(kind) for word in _words(inner)}


def _from_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text

"""Where each setting's value comes from: for the operator, and for a support bundle.

Numbers, switches, and words from a fixed set are shown. Texts that people wrote are shown only to
the operator. Struct lists can have secrets inside, so their kind always replaces them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from appliance.kernel import config
from appliance.kernel.log import without_path
from appliance.settings import Settings

DEFAULT, FILE, ENVIRONMENT = "default", "agentlip.toml", "environment"
COMMAND_LINE = "command line"


class SettingView(msgspec.Struct, frozen=True):
    """A setting's value. `value`: null if taken out; then `kind` names the type."""

    value: Any
    origin: str
    kind: str = ""


class SettingsView(msgspec.Struct, frozen=True):
    settings: dict[str, SettingView]


def view(
    file: Path, environment: Mapping[str, str], settings: msgspec.Struct, *, texts: bool = True
) -> SettingsView:
    """Return a process's settings, by name. Values that neither the file nor the environment
    explains came from the command line. `texts`: also texts that people wrote. Raise
    BadSettings."""
    given_by_variables = config.read_environment(environment, Settings)
    sources = {
        ENVIRONMENT: {".".join(names): value for names, value in given_by_variables},
        FILE: _flatten(config.read_toml(file) if file.exists() else {}),
    }
    current = _flatten(msgspec.to_builtins(settings))
    shown = {}
    for name, field in _fields():
        origin = next((source for source, given in sources.items() if name in given), DEFAULT)
        given = sources[origin][name] if origin in sources else _default(field)
        if msgspec.to_builtins(msgspec.convert(given, field.type)) != current[name]:
            origin = COMMAND_LINE
        shown[name] = _view(field, current[name], origin, texts=texts)
    return SettingsView(shown)


def words_in(shown: SettingsView) -> set[str]:
    """Return all setting names, and the texts that the view shows."""
    names = {word for name, _ in _fields() for word in (name, *name.split("."))}
    return names.union(
        setting.value for setting in shown.settings.values() if isinstance(setting.value, str)
    )


def _fields() -> list[tuple[str, msgspec.structs.FieldInfo]]:
    return [
        (f"{section.encode_name}.{field.encode_name}", field)
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    ]


def _flatten(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{name}": value
        for section, values in sections.items()
        for name, value in (values.items() if isinstance(values, dict) else ())
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _view(field: msgspec.structs.FieldInfo, value: Any, origin: str, *, texts: bool) -> SettingView:
    if texts and isinstance(value, list | tuple) and _is_text(value):
        value = [without_path(item) for item in value]
    if value is None or isinstance(value, bool | int | float) or (texts and _is_text(value)):
        return SettingView(value, origin)
    if isinstance(value, str):
        if value == _default(field) or value in _words(field.type):
            return SettingView(value, origin)
        return SettingView(None, origin, "path" if field.name.endswith("_file") else "text")
    return SettingView(None, origin, f"{type(value).__name__} of {len(value)}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    )


def _words(kind: Any) -> set[Any]:
    """Return the words that a setting can have, if they are a fixed set."""
    if get_origin(kind) is Literal:
        return set(get_args(kind))
    return {word for inner in get_args(kind) for word in _words(inner)}

"""Settings: a TOML file, then the environment, then flags; later wins; unknown is refused.

Nested sections are frozen msgspec structs. An environment variable names a field as
`AGENTLIP_<SECTION>__<FIELD>`; its text is read as JSON where that parses (numbers,
true, lists), else as the string it is. A field that ends in `_file` names a file that
holds the secret; `secret()` reads it.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from appliance.kernel.errors import Invalid

PREFIX = "AGENTLIP_"
T = TypeVar("T")


class BadSettings(Invalid):
    code = "BAD_SETTINGS"
    sentence = "the settings can't be read"
    advice = "every setting with its default is in ops/agentlip.toml"


def load(
    kind: type[T],
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> T:
    """Settings of struct `kind`.

    `flags` maps dotted paths (`http.port`) to values; a None means the flag was not given.
    Raises BadSettings with the path of the first wrong or unknown key.
    """
    merged = _read_toml(file) if file is not None and file.exists() else {}
    for name, text in sorted(environment.items()):
        if name.startswith(PREFIX) and "__" in name:
            _put(merged, name[len(PREFIX) :].lower().split("__"), _from_text(text))
    for path, value in (flags or {}).items():
        if value is not None:
            _put(merged, path.split("."), value)
    try:
        return msgspec.convert(merged, kind)
    except msgspec.ValidationError as error:
        raise BadSettings(f"settings: {error}") from None


def secret(path: str) -> str:
    """The text of a secret's file, without the newline at its end."""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"settings: can't read the secret file: {error}") from None


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings: {file}: {error}") from None


def _from_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            raise BadSettings(f"settings: {name} is a section, not a value")
        tree = branch
    tree[path[-1]] = value

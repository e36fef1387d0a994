"""Compares settings before and after a restore, because some settings are commands that the
appliance runs."""

import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from appliance.workspace.datadir import DataDir

UNSET = "not set"
UNREADABLE = "agentlip.toml can't be read"


class ChangedSetting(msgspec.Struct, frozen=True):
    """A changed setting. `name`: such as `hooks.commands`. The values are JSON, or `not set`."""

    name: str
    before: str
    after: str


def compare(present: DataDir, restored: DataDir) -> tuple[ChangedSetting, ...]:
    """Return all settings that differ, by name; none if no settings are restored."""
    if not restored.settings_file.is_file():
        return ()
    before, after = _values(present), _values(restored)
    return tuple(
        ChangedSetting(name, before.get(name, UNSET), after.get(name, UNSET))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def _values(datadir: DataDir) -> dict[str, str]:
    try:
        text = datadir.settings_file.read_text(encoding="utf-8-sig")
        return dict(_flat(tomllib.loads(text), ""))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):  # also undecodable values
        return {UNREADABLE: ""}


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", msgspec.json.encode(value).decode()

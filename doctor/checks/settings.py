"""agentlip.toml: it can be read, and the secrets it names are there."""

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doctor.check import Check, Context, Finding, Severity


def _file(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        yield Finding(
            Severity.ERROR,
            path.name,
            f"it can't be read, so the appliance will not start again: {error}",
            "every setting with its default is in ops/agentlip.toml",
        )
    if path.stat().st_mode & stat.S_IWOTH:
        yield Finding(
            Severity.WARNING,
            path.name,
            "everybody on this machine can change the settings",
            f"chmod o-w {path}",
        )


def _secrets(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return  # said by settings.file
    for name, value in _files(tree, ""):
        if context.is_off(name):
            continue
        secret = Path(value)
        if not secret.is_file():
            yield Finding(
                Severity.ERROR,
                name,
                "the file it names is not there, so the appliance will not start again",
                f"ls -l {secret}",
            )
        elif secret.stat().st_mode & stat.S_IWOTH:
            yield Finding(
                Severity.WARNING,
                name,
                "everybody on this machine can change the secret it names",
                f"chmod o-w {secret}",
            )


def _files(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _files(value, f"{prefix}{key}.")
        elif key.endswith("_file") and isinstance(value, str) and value:
            yield f"{prefix}{key}", value


def _unread(context: Context) -> Iterator[Finding]:
    path = context.datadir.unread_settings_file
    if path.exists():
        yield Finding(
            Severity.WARNING,
            path.name,
            "this file is not read; its settings have no effect",
            f"write settings to {context.datadir.settings_file}; docs/settings.md lists them",
        )


CHECKS = (
    Check(name="settings.file", inspects="agentlip.toml can be read", find=_file),
    Check(
        name="settings.unread",
        inspects="there is no agentlip.config.ts, which would not be read",
        find=_unread,
    ),
    Check(
        name="settings.secrets",
        inspects="the secrets that settings name are there",
        find=_secrets,
    ),
)

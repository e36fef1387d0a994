"""Checks of agentlip.toml: every setting is known and valid, and its secret files exist."""

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel import config
from doctor.check import Check, Finding, Problem, Severity
from doctor.context import Context

# Programs that read agentlip.config.ts accept these as well.
_UNREAD_SUFFIXES = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json")


def _file(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        config.load(_sections(), path, {})
    except config.BadSettings as error:
        yield Finding(
            Severity.ERROR,
            path.name,
            f"the appliance can't start again with it: {error.message}",
            error.hint,
            problem="invalid",
        )
    if path.stat().st_mode & stat.S_IWOTH:
        yield Finding(
            Severity.WARNING,
            path.name,
            "all users can change the settings",
            f"chmod o-w {path}",
            problem="too-open",
        )


def _sections() -> type[msgspec.Struct]:
    """All sections of the settings; none, which accepts anything, where the server's libraries are
    not installed, so that no appliance can be started."""
    try:
        from appliance.settings import Settings  # imports much, so only if there is a file
    except ImportError:
        return msgspec.defstruct("Anything", ())
    return Settings


def _secrets(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return  # settings.file reports it
    for name, value in _files(tree, ""):
        if context.is_off(name):
            continue
        secret = Path(value)
        if not secret.is_file():
            yield Finding(
                Severity.ERROR,
                name,
                "its file is missing, so the appliance can't start again",
                f"ls -l {secret}",
                problem="missing",
            )
        elif secret.stat().st_mode & stat.S_IWOTH:
            yield Finding(
                Severity.WARNING,
                name,
                "all users can change the secret in its file",
                f"chmod o-w {secret}",
                problem="too-open",
            )


def _files(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _files(value, f"{prefix}{key}.")
        elif key.endswith("_file") and isinstance(value, str) and value:
            yield f"{prefix}{key}", value


def _unread(context: Context) -> Iterator[Finding]:
    own = context.datadir.unread_settings_file
    for suffix in _UNREAD_SUFFIXES:
        path = own.with_suffix(suffix)
        if not path.exists():
            continue
        yield Finding(
            Severity.WARNING,
            path.name,
            "this file is ignored; its settings have no effect",
            f"write settings to {context.datadir.settings_file}; docs/reference/settings.md",
            problem="ignored",
        )


CHECKS = (
    Check(
        name="settings.file",
        inspects="every setting in agentlip.toml is known and valid",
        find=_file,
        reads="the content and mode of `agentlip.toml`",
        problems=(
            Problem(
                "invalid",
                "The file is not valid TOML, or a setting in it is unknown or has an invalid value."
                " A running appliance is unaffected, but it can't start again.",
                "Correct the line or the setting that the message names.",
            ),
            Problem(
                "too-open",
                "Any user of this machine can change the settings.",
                "Remove the permission: `chmod o-w agentlip.toml`.",
            ),
        ),
    ),
    Check(
        name="settings.unread",
        inspects="there is no settings file of another implementation, which is ignored",
        find=_unread,
        reads="whether `agentlip.config.ts`, or one with `.mts`, `.cts`, `.js`, `.mjs`, `.cjs` or"
        " `.json`, exists",
        problems=(
            Problem(
                "ignored",
                "Another implementation of the hub reads this file. This one doesn't, so its"
                " settings have no effect.",
                "Write the settings to `agentlip.toml`, and remove the file.",
            ),
        ),
    ),
    Check(
        name="settings.secrets",
        inspects="the secret files in the settings exist",
        find=_secrets,
        reads="the files that the settings with names ending in `_file` refer to",
        problems=(
            Problem(
                "missing",
                "The appliance can't start again without this file.",
                "Create the file, or correct its path in `agentlip.toml`.",
            ),
            Problem(
                "too-open",
                "Any user of this machine can replace the secret.",
                "Remove the permission: `chmod o-w FILE`.",
            ),
        ),
    ),
)

"""Checks for agentlip.toml: every setting is known and valid, and the secret files exist."""

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.backup import keys
from appliance.backup.settings import BackupSettings
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.hub.queries import topics_named
from appliance.kernel import config
from appliance.kernel.errors import ApplianceError
from appliance.kernel.reader import Reader
from appliance.operations.settings import kind_of
from appliance.workspace.datadir import DataDir

# Also accepted by programs that read agentlip.config.ts.
_UNREAD_SUFFIXES = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json")


NOT_ABOVE = (
    ("courier", "bytes_max", "bytes_total_max"),
    ("doctor", "disk_error_bytes", "disk_warning_bytes"),
    ("doctor", "disk_error_percent", "disk_warning_percent"),
    ("limits", "per_connection", "global"),
)
"""Sections, each with two settings: the first must not be above the second, unless that is 0."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
RATES = ("per_connection", "global", "failures_per_address")
RATE_MIN, RATE_MAX = 5, 100_000
"""The web UI needs a handful of requests at once; no client and no disk can process more."""

KEPT = ("keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly")


def _file(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        yield from _contradictions(context, _load(context.datadir))
    except config.BadSettings as error:
        yield INVALID.finding(
            path.name, f"the appliance can't start again with it: {error.message}", error.hint
        )
    if path.stat().st_mode & stat.S_IWOTH:
        yield FILE_TOO_OPEN.finding(
            path.name, "all users can change the settings", f"chmod o-w {path}"
        )


def _contradictions(context: Context, settings: msgspec.Struct) -> Iterator[Finding]:
    tree = msgspec.to_builtins(settings)
    problems = [
        f"{section}.{low} is {tree[section][low]}, above {section}.{high}, which is"
        f" {tree[section][high]}"
        for section, low, high in NOT_ABOVE
        if section in tree and tree[section][low] > tree[section][high] > 0
    ]
    counts = {name: tree["backup"][name] for name in KEPT} if "backup" in tree else {"": 1}
    if not any(counts.values()):
        problems.append(f"{' and '.join(f'backup.{name}' for name in KEPT)} are 0: keep one backup")
    for problem in problems:
        name = problem.partition(" ")[0]
        if not context.is_off(name):
            yield CONTRADICTORY.finding(name, problem)

    yield from _absurd_limits(tree)
    yield from _unusable(context, tree)


def _absurd_limits(tree: dict[str, Any]) -> Iterator[Finding]:
    """Find rates that refuse normal use, that limit nobody, or that are off where others can
    connect."""
    is_local = "http" not in tree or tree["http"]["host"] in LOOPBACK
    for name in RATES if "limits" in tree else ():
        rate = tree["limits"][name]
        if not rate and not is_local:
            yield ABSURD.finding(f"limits.{name}", "is off, and other machines can connect")
        elif rate and not RATE_MIN <= rate <= RATE_MAX:
            yield ABSURD.finding(
                f"limits.{name}",
                f"{rate:g} requests a second is not from {RATE_MIN} to {RATE_MAX}",
            )


def _load(datadir: DataDir) -> msgspec.Struct:
    """Load and validate the settings as a start does. Where the server's libraries are not
    installed, no appliance can start, no section is known and anything is accepted."""
    try:  # imports much, so only if there is a file
        from appliance.integrations.settings_rules import check_settings
        from appliance.settings import Settings
    except ImportError:
        return config.load(msgspec.defstruct("Anything", ()), datadir.settings_file, {})
    settings = config.load(Settings, datadir.settings_file, os.environ)
    check_settings(settings, datadir)
    return settings


def _unusable(context: Context, tree: dict[str, Any]) -> Iterator[Finding]:
    """Find values that a start accepts and that fail later: backup keys and message topics."""
    if "backup" in tree:
        try:
            keys.recipients(msgspec.convert(tree["backup"], BackupSettings))
        except ApplianceError as error:
            yield UNUSABLE.finding("backup.recipients", error.message, error.hint)
    to = tree["notify"]["to"] if "notify" in tree else ()
    topics = [name.partition(":")[2] for name in to if kind_of(name) == "topic"]
    for connection in context.with_tables("hub", "topics", "channels"):
        there = topics_named(Reader(connection, context.clock), topics)
        for name in sorted({*topics} - there.keys()):
            channel, title = map(shlex.quote, name.split("/", 1))
            hint = f"agentlip topic create {title} --channel {channel}"
            yield UNUSABLE.finding("notify.to", f"the hub has no topic {name}", hint)


def _secrets(context: Context) -> Iterator[Finding]:
    path = context.datadir.settings_file
    if not path.exists():
        return
    try:
        tree = config.read_toml(path)
    except config.BadSettings:
        return  # reported by settings.file
    for name, value in _files(tree, ""):
        if context.is_off(name):
            continue
        secret = Path(value)
        if not secret.is_file():
            yield MISSING.finding(
                name, "its file is missing, so the appliance can't start again", f"ls -l {secret}"
            )
        elif secret.stat().st_mode & stat.S_IWOTH:
            yield SECRETS_TOO_OPEN.finding(
                name, "all users can change the secret in its file", f"chmod o-w {secret}"
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
        yield IGNORED.finding(
            path.name,
            "this file is ignored; its settings have no effect",
            f"write settings to {context.datadir.settings_file}; docs/reference/settings.md",
        )


INVALID = Problem("invalid", Severity.ERROR)
UNUSABLE = Problem("unusable", Severity.ERROR)
CONTRADICTORY = Problem(
    "contradictory", hint="correct one value in agentlip.toml; then agentlipd restart"
)
ABSURD = Problem("absurd-limit", hint="correct [limits] in agentlip.toml; then agentlipd restart")
FILE_TOO_OPEN = Problem("too-open")
IGNORED = Problem("ignored")
MISSING = Problem("missing", Severity.ERROR)
SECRETS_TOO_OPEN = Problem("too-open")
CHECKS = (
    Check(
        name="settings.file", inspects="every setting in agentlip.toml is known and valid",
        find=_file, problems=(INVALID, UNUSABLE, CONTRADICTORY, ABSURD, FILE_TOO_OPEN),
    ),
    Check(
        name="settings.unread",
        inspects="no ignored settings file from another implementation exists",
        find=_unread,
        problems=(IGNORED,),
    ),
    Check(
        name="settings.secrets", inspects="the secret files in the settings exist", find=_secrets,
        problems=(MISSING, SECRETS_TOO_OPEN),
    ),
)  # fmt: skip

"""Plugins: those named can be read; those in use work, keep up, and are shut in."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from appliance.hub.plugins import source
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from doctor.check import Check, Context, Finding, Severity

PREFIX = "plugin."
OPEN = "open_"
MEANING = {
    "write": "writing into .agentlip/",
    "read": "reading .agentlip/",
    "network": "opening sockets",
    "subprocesses": "starting processes",
    "processes": "signalling other processes",
    "namespaces": "making namespaces",
    "shared_memory": "leaving shared memory behind",
    "survival": "outliving the appliance",
}
LIST = "agentlip plugin list"


def _working(context: Context) -> Iterator[Finding]:
    for name, facts in _plugins(context.live or {}).items():
        subject = f"plugin {name}"
        if facts.get("broken"):
            yield Finding(
                Severity.WARNING, subject, "it can't run; messages wait for it in the log", LIST
            )
        elif facts.get("paused"):
            yield Finding(Severity.WARNING, subject, "it keeps failing and pauses", LIST)
        lag, most = facts.get("lag_events", 0.0), facts.get("lag_events_max", float("inf"))
        if lag > most:
            yield Finding(Severity.WARNING, subject, f"it is {lag:.0f} events behind the log", LIST)


def _shut_in(context: Context) -> Iterator[Finding]:
    for name, facts in _plugins(context.live or {}).items():
        gaps = [key.removeprefix(OPEN) for key in facts if key.startswith(OPEN)]
        if "root" in gaps:
            yield Finding(
                Severity.WARNING,
                f"plugin {name}",
                "its process stays root, because plugins.uid can't read this Python",
                "use a Python outside of root's home: rm -r .venv; PYTHON=/usr/bin/python3 ops/env",
            )
        gaps = [step for step in gaps if step != "root"]
        if gaps:
            yield Finding(
                Severity.WARNING,
                f"plugin {name}",
                f"its process is not kept from: {', '.join(MEANING[step] for step in gaps)}",
                _way_out(gaps),
            )


def _way_out(gaps: list[str]) -> str:
    if "write" in gaps or "read" in gaps:
        return "use a kernel and a container engine with Landlock; see docs/plugins.md"
    return "sudo apt-get install libseccomp2, then agentlipd restart; see docs/plugins.md"


def _modules(context: Context) -> Iterator[Finding]:
    """Also without an appliance that runs: would its next start find them?"""
    section = _section(context)
    try:
        settings = msgspec.convert(section, PluginsSettings)
    except msgspec.ValidationError as error:
        yield Finding(
            Severity.ERROR,
            "[plugins]",
            f"the appliance will not start again: {error}",
            "every setting with its default is in ops/agentlip.toml",
        )
        return
    for own in settings.all if settings.enabled else ():
        if own.enabled:
            yield from _module(context, own, settings)


def _module(context: Context, own: PluginSettings, settings: PluginsSettings) -> Iterator[Finding]:
    try:
        source.read(own, context.datadir.workspace, settings.module_bytes_max)
    except source.BadSource as error:
        severity = Severity.ERROR if own.required else Severity.WARNING
        then = "the appliance will not start again" if own.required else "it is left out"
        yield Finding(severity, f"plugin {own.name}", f"{error}; {then}", "see docs/plugins.md")


def _section(context: Context) -> Any:
    try:
        text = context.datadir.settings_file.read_text(encoding="utf-8")
        return tomllib.loads(text).get("plugins", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # said by settings.file


def _plugins(live: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """name → its numbers."""
    found: dict[str, dict[str, float]] = {}
    for key, value in live.items():
        if key.startswith(PREFIX):
            name, _, what = key.removeprefix(PREFIX).rpartition(".")
            found.setdefault(name, {})[what] = value
    return found


CHECKS = (
    Check(
        name="plugins.modules",
        inspects="the modules of plugins are where the settings say",
        find=_modules,
    ),
    Check(
        name="plugins.working",
        inspects="plugins in use can run and keep up with the log",
        find=_working,
        ready=True,
    ),
    Check(
        name="plugins.isolation",
        inspects="plugin processes are isolated, as tested at their last start",
        find=_shut_in,
        ready=True,
    ),
)

"""Checks plugins: their modules, isolation and failures."""

from collections.abc import Iterator, Mapping

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.hub.plugins import source
from appliance.hub.plugins.settings import NOBODY, PluginSettings, PluginsSettings

PREFIX = "plugin."
OPEN = "open_"
MEANING = {
    "write": "writing into .agentlip/",
    "read": "reading .agentlip/",
    "network": "opening sockets",
    "subprocesses": "starting processes",
    "processes": "signalling other processes",
    "namespaces": "creating namespaces",
    "shared_memory": "leaving shared memory behind",
    "survival": "outliving the appliance",
}
LIST = "agentlip plugin list"
OTHER_PYTHON = "use a Python outside root's home: rm -r .venv; PYTHON=/usr/bin/python3 ops/env"


def _working(context: Context) -> Iterator[Finding]:
    for name, facts in _plugins(context.live or {}).items():
        subject = f"plugin {name}"
        if facts.get("broken"):
            yield BROKEN.finding(subject, "the plugin can't run; messages wait for it in the log")
        elif facts.get("paused"):
            yield PAUSED.finding(subject, "the plugin keeps failing and pauses")
        lag, lag_max = facts.get("lag_events", 0.0), facts.get("lag_events_max", float("inf"))
        if lag > lag_max:
            yield BEHIND.finding(subject, f"the plugin is {lag:.0f} events behind the log")


def _shut_in(context: Context) -> Iterator[Finding]:
    for name, facts in _plugins(context.live or {}).items():
        gaps = [key.removeprefix(OPEN) for key in facts if key.startswith(OPEN)]
        if "root" in gaps:
            yield ROOT.finding(
                f"plugin {name}",
                f"the plugin process runs as root, because user {NOBODY} can't read this Python",
            )
        gaps = [step for step in gaps if step != "root"]
        if gaps:
            yield NOT_ISOLATED.finding(
                f"plugin {name}",
                f"its process isn't prevented from: {', '.join(MEANING[step] for step in gaps)}",
                _way_out(gaps),
            )


def _way_out(gaps: list[str]) -> str:
    if "write" in gaps or "read" in gaps:
        return "use a kernel and a container engine with Landlock; see docs/how-to/plugins.md"
    return "sudo apt-get install libseccomp2, then agentlipd restart; see docs/how-to/plugins.md"


def _modules(context: Context) -> Iterator[Finding]:
    """Check the modules. Reads the settings file, so it also works without a running appliance.
    If the section is not valid, settings.file reports it."""
    settings = section(context.datadir.settings_file, "plugins", PluginsSettings)
    for own in settings.all if settings is not None else ():
        if own.enabled:
            yield from _module(context, own)


def _module(context: Context, own: PluginSettings) -> Iterator[Finding]:
    try:
        source.read(own, context.datadir.workspace)
    except source.BadSource as error:
        severity = Severity.ERROR if own.required else Severity.WARNING
        then = "the appliance won't start" if own.required else "the plugin is left out"
        yield UNUSABLE.finding(f"plugin {own.name}", f"{error}; {then}", severity=severity)


def _plugins(live: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return facts by plugin name."""
    plugins: dict[str, dict[str, float]] = {}
    for key, value in live.items():
        if key.startswith(PREFIX):
            name, _, what = key.removeprefix(PREFIX).rpartition(".")
            plugins.setdefault(name, {})[what] = value
    return plugins


UNUSABLE = Problem("unusable", hint="see docs/how-to/plugins.md")
BROKEN = Problem("broken", hint=LIST)
PAUSED = Problem("paused", hint=LIST)
BEHIND = Problem("behind", hint=LIST)
ROOT = Problem("root", hint=OTHER_PYTHON)
NOT_ISOLATED = Problem("not-isolated")
CHECKS = (
    Check(
        name="plugins.modules", inspects="plugin modules exist and are readable",
        find=_modules, problems=(UNUSABLE,),
    ),
    Check(
        name="plugins.working", inspects="plugins in use can run and keep up with the log",
        find=_working, ready=True, problems=(BROKEN, PAUSED, BEHIND),
    ),
    Check(
        name="plugins.isolation",
        inspects="plugin processes are isolated, as tested at their last start", find=_shut_in,
        ready=True, problems=(ROOT, NOT_ISOLATED),
    ),
)  # fmt: skip

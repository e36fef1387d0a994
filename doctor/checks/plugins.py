"""Plugins: those in use work, keep up, and are shut in. Asked of the appliance that runs."""

from collections.abc import Iterator, Mapping

from doctor.check import Check, Context, Finding, Severity

PREFIX = "plugin."
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
        if facts.get("unisolated"):
            yield Finding(
                Severity.WARNING,
                f"plugin {name}",
                "nothing here keeps its process from writing into .agentlip/",
                "use a kernel and an engine with Landlock; docs/plugins.md says what else helps",
            )


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
        name="plugins.working",
        inspects="plugins in use can run and keep up with the log",
        find=_working,
        ready=True,
    ),
    Check(
        name="plugins.isolation",
        inspects="no plugin's process could write into the data directory",
        find=_shut_in,
        ready=True,
    ),
)

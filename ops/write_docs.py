"""Writes the generated part of pages of docs/ (settings, errors, metrics, routes, events, checks,
worker commands, the list of decisions), which is below the line MADE.

    python -m ops.write_docs            writes what has changed, and names it
    python -m ops.write_docs --check    writes nothing; names what is stale and exits with 1

A process of its own, because it imports the server, which patches the standard library.
The routes are those of an appliance that is really put together in a temporary workspace,
and the examples of events are what its verbs really wrote.
"""

import appliance.server  # first: it patches what everything below imports

# isort: split
import argparse
import importlib
import importlib.util
import pkgutil
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

import doctor
from appliance.app import Appliance
from appliance.bus import cli, cli_worker
from appliance.cli_support import EXIT_BY_KIND, EXIT_BY_STATUS, EXIT_GENERAL
from appliance.courier.settings import CourierSettings
from appliance.courier.subsystem import free_scopes
from appliance.hub import wire
from appliance.hub.plugins import wire as plugin_wire
from appliance.hub.plugins import writes as plugin_writes
from appliance.hub.subsystem import HubSubsystem
from appliance.hub.wire import SCOPES as hub_scopes
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.metrics import REGISTRY
from appliance.kernel.route import Route
from appliance.roles import RolesSettings
from appliance.settings import Settings
from appliance.web.guard import FREE_ON_LOOPBACK
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir, WriterLock
from doctor.checks import CHECKS
from ops.markdown import MADE, code, page, table
from ops.write_settings import render_section

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

# Under which heading an error stands, by the module that declares it.
AT_START = (
    "appliance.process.listeners",
    "appliance.server",
    "appliance.kernel.config",
    "appliance.workspace.datadir",
    "appliance.kernel.ownership",
    "appliance.workspace.migration",
    "appliance.workspace.upgrade",
)
ANSWERS = (
    "appliance.checks",
    "appliance.kernel",
    "appliance.workspace",
    "appliance.web",
    "appliance.roles",
    "appliance.wsgi",
    "appliance.mesh",
    "appliance.network",
    "appliance.sdk.network",
    *(
        f"{package.name}." if package.name != "appliance.export" else "appliance.export.wire"
        for package in pkgutil.iter_modules(appliance.__path__, "appliance.")
        if package.ispkg and importlib.util.find_spec(f"{package.name}.subsystem")
    ),
)

ALL_ROLES = Settings(roles=RolesSettings(relay=True, network=True))

FREE = FREE_ON_LOOPBACK | hub_scopes.free | free_scopes(CourierSettings())

UNITS = {"seconds": "s", "timestamp": "s since 1970", "bytes": "bytes", "ratio": "0 to 1"}


def pages() -> dict[str, str]:
    """File name → text, for every generated page."""
    import_everything()
    with tempfile.TemporaryDirectory() as folder:
        routes, events = sample_appliance(Path(folder))
    return {
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "metrics.md": metrics_page(),
        "routes.md": routes_page(routes),
        "events.md": events_page(events),
        "worker.md": command_page(),
        "checks.md": checks_page(),
        "../decisions/index.md": decisions_page(),
    }


WRITER = Principal("docs", "ci", frozenset({ADMIN}))


def import_everything() -> None:
    """Errors and metrics are known once their modules are."""
    for package in (appliance, doctor):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def sample_appliance(folder: Path) -> tuple[list[Route], list[dict[str, Any]]]:
    """The routes of a whole appliance, and one event of every verb of its hub."""
    datadir, clock, log = DataDir(folder), SystemClock(), Log(sys.stderr.buffer, level="error")
    schema.create_workspace(datadir, clock=clock, log=log)
    lock = WriterLock(datadir, "docs", clock)
    lock.acquire()
    try:
        whole = Appliance(ALL_ROLES, lock, log)
        try:
            hub = next(
                subsystem for subsystem in whole.subsystems if isinstance(subsystem, HubSubsystem)
            )
            exercise(hub)
            logged = hub.hub.list_events(wire.EventsQuery(limit=1000), WRITER)
            return whole.routes(), msgspec.json.decode(logged)["events"]
        finally:
            whole.stop()
    finally:
        lock.release()


def exercise(whole: HubSubsystem) -> None:
    """Every verb that writes an event, once, in the order a story has."""
    hub, who = whole.hub, WRITER

    def made(reply: Any, noun: str) -> str:
        return str(msgspec.json.decode(reply.body)[noun]["id"])

    channel_id = made(hub.create_channel(wire.CreateChannel("general"), who), "channel")
    topic_id = made(hub.create_topic(wire.CreateTopic(channel_id, "builds"), who), "topic")
    hub.rename_topic(topic_id, wire.RenameTopic("nightly builds"), who)
    posted = hub.create_message(wire.CreateMessage(topic_id, "ci", "passed"), who)
    message_id = made(posted, "message")
    other = made(hub.create_topic(wire.CreateTopic(channel_id, "archive"), who), "topic")
    link = {"url": "https://example.com/run/7"}
    attached = wire.AddAttachment("url", link, None, "run 7", message_id)
    hub.add_attachment(topic_id, attached, who)
    hub.patch_message(message_id, wire.EditMessage("passed, 2 skipped", 1), who)
    finding = plugin_wire.EnrichmentFinding("count", plugin_wire.TextSpan(8, 17), {"skipped": 2})
    seen = hub.get_message(message_id, who).message
    whole.store.write(plugin_writes.store_enrichments, "counts", seen, [finding])
    hub.patch_message(message_id, wire.MoveMessage(other, "later", 2), who)
    hub.patch_message(message_id, wire.DeleteMessage("ci", 3), who)


# -- the pages ---------------------------------------------------------------------------


def settings_page() -> str:
    sections = []
    for section in msgspec.structs.fields(Settings):
        name = section.encode_name
        sections += [f"## [{name}]", f"```toml\n{render_section(name, section.type)}```"]
    return page(sections)


def errors_page() -> str:
    answers, start, terminal = [], [], []
    for kind in error_classes():
        if kind.__module__.startswith(AT_START):
            start.append((code(kind.code), kind.default_message, kind.default_hint))
        elif kind.__module__.startswith(ANSWERS) and ".cli" not in kind.__module__:
            answers.append(answer_row(kind))
        else:
            left = getattr(kind, "exit_code", EXIT_BY_KIND.get(kind.kind, EXIT_GENERAL))
            terminal.append((code(kind.code), kind.default_message, kind.default_hint, str(left)))
    return page(
        [
            "## Responses over HTTP, on sockets and in batches",
            "The last column is the exit code of the command line.",
            table(("Code", "HTTP", "Message", "Hint", "Exit"), answers),
            "## At the start of the appliance, and in the search for a workspace",
            table(("Code", "Message", "Hint"), start),
            "## Only in the command line and the SDK",
            table(("Code", "Message", "Hint", "Exit"), terminal),
        ]
    )


def error_classes() -> list[type[ApplianceError]]:
    classes, waiting = set(), [ApplianceError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if {"code", "default_message", "default_hint"} & set(vars(kind)):
            classes.add(kind)
    return sorted(classes, key=lambda kind: (kind.code, kind.default_message, kind.__name__))


def answer_row(kind: type[ApplianceError]) -> tuple[str, ...]:
    left = getattr(kind, "exit_code", EXIT_BY_STATUS.get(kind.status, EXIT_GENERAL))
    return code(kind.code), str(kind.status), kind.default_message, kind.default_hint, str(left)


def metrics_page() -> str:
    rows = []
    for collector in REGISTRY._collector_to_names:
        for family in getattr(collector, "describe", tuple)():
            name = family.name + ("_total" if family.type == "counter" else "")
            names = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            labels = ", ".join(map(code, names))
            text = family.documentation
            rows.append((code(name), family.type, unit_of(name, text), labels, text))
    heads = ("Name", "Type", "Unit", "Labels", "Meaning")
    return page([table(heads, sorted(rows))])


def unit_of(name: str, text: str) -> str:
    if text.startswith(("1 if ", "1 while ", "1 for ")):
        return "0 or 1"
    word = name.removesuffix("_total").rpartition("_")[2]
    if name.endswith("_timestamp_seconds"):
        word = "timestamp"
    return UNITS.get(word, "count")


def routes_page(routes: Sequence[Route]) -> str:
    rows = [
        (
            code(f"{method} {route.path}"),
            operation.summary,
            " or ".join(map(code, operation.scopes)) or "none",
            "yes" if operation.scope in FREE else "",
            "; ".join(filter(None, map(field_names, (operation.query, operation.body)))),
            str(operation.status),
        )
        for route in routes
        for method, operation in route.operations.items()
    ]
    return page([table(("Route", "Effect", "Scope", "Free", "Fields", "Status"), rows)])


def field_names(kind: Any) -> str:
    """The fields of a request; those that may be omitted have a question mark."""
    return " or ".join(
        " ".join(
            code(field.encode_name + ("" if field.required else "?"))
            for field in msgspec.structs.fields(struct)
        )
        for struct in getattr(kind, "__args__", (kind,))
        if struct is not None
    )


def events_page(events: Sequence[dict[str, Any]]) -> str:
    names = [event["name"] for event in events]
    events = [event for at, event in enumerate(events) if event["name"] not in names[:at]]
    rows = [
        (code(e["name"]), e["entity"]["type"], ", ".join(code(name) for name in e["scope"]))
        for e in events
    ]
    sections = [table(("Event", "Entity", "Scope"), rows)]
    for event in events:
        text = msgspec.json.format(msgspec.json.encode(event["data_json"]), indent=2).decode()
        sections += [f"## {event['name']}", f"```json\n{anonymous(text)}\n```"]
    return page(sections)


def anonymous(text: str) -> str:
    """The same at every run: one instant, and ids by their prefix."""
    text = re.sub(r"\b(ch|topic|msg|att)_[0-9A-Z]{26}\b", r"\1_…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-02-04T20:00:00.000Z", text)


def command_page() -> str:
    """The commands of the worker bus, as `typer utils docs` describes them."""
    apps = (("agentlip worker", cli_worker.app), ("agentlip bus", cli.app))
    return page(
        get_docs_for_click(obj=group, ctx=typer.Context(group), indent=1, name=name).strip()
        for name, group in ((name, get_command(app)) for name, app in apps)
    )


def checks_page() -> str:
    """The index. The page of a group is written by hand, because it is all prose."""
    rows = [
        (
            f"[{code(check.name)}](checks/{check.group}.md#{check.name.replace('.', '')})",
            check.inspects,
            check.cost.value,
            "yes" if check.ready else "",
            "yes" if check.repair else "",
        )
        for check in CHECKS
    ]
    return page([table(("Check", "Inspects", "Cost", "Ready", "Repair"), rows)])


def decisions_page() -> str:
    rows = []
    for file in sorted((FOLDER.parent / "decisions").glob("[0-9]*.md")):
        number, _, title = file.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(". ")
        rows.append((number, f"[{title}]({file.name})"))
    return page([table(("Number", "Decision"), rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    check = parser.parse_args().check
    stale = []
    for name, made in pages().items():
        file = FOLDER / name
        former = file.read_text("utf-8")
        text = former.partition(MADE)[0] + made
        if former != text:
            stale.append(name)
            if not check:
                file.write_text(text, "utf-8")
    for name in stale:
        print(f"docs/reference/{name}" + (" is stale; run: just docs" if check else ""))
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())

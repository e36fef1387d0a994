"""Writes the generated part of pages in docs/ (settings, errors, metrics, routes, scopes,
events, checks, commands, decisions), which is below the line MADE.

    python -m ops.write_docs            writes what has changed, and names it
    python -m ops.write_docs --check    writes nothing; names what is stale, and exits with 1

A separate process, because it imports the server, which patches the standard library. The routes
come from a real appliance in a temporary workspace, and the event examples from its verbs.
"""

import appliance.server  # first: patches the modules that everything below imports

# isort: split
import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

import doctor
from appliance.cli_support import EXIT_BY_KIND, EXIT_BY_STATUS, EXIT_GENERAL
from appliance.courier.settings import CourierSettings
from appliance.courier.subsystem import free_scopes
from appliance.declared_scopes import DECLARED_SCOPES
from appliance.hub import wire
from appliance.hub.bounds import wire as bounds_wire
from appliance.hub.bounds.service import Bounds
from appliance.hub.bounds.subsystem import BoundsSubsystem
from appliance.hub.catchup import wire as catchup_wire
from appliance.hub.catchup.service import CatchUps
from appliance.hub.catchup.subsystem import CatchUpSubsystem
from appliance.hub.entries import wire as entries_wire
from appliance.hub.entries.service import Entries
from appliance.hub.entries.subsystem import EntriesSubsystem
from appliance.hub.plugins import wire as plugin_wire
from appliance.hub.plugins import writes as plugin_writes
from appliance.hub.service import Hub
from appliance.hub.subsystem import HubSubsystem
from appliance.hub.wire import SCOPES as hub_scopes
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.declaring_modules import import_named
from appliance.kernel.errors import ApplianceError
from appliance.kernel.metrics import REGISTRY
from appliance.kernel.route import Route
from appliance.kernel.steady_clock import ClockNote, read_clocks, write_note
from appliance.settings import Settings
from appliance.tokens.wire import BY_CHANNEL, BY_MESH
from appliance.web.guard import FREE_ON_LOOPBACK
from appliance.workspace.contents import CONTENTS
from doctor.all_checks import CHECKS
from ops import cli_page, generated
from ops.markdown import MADE, code, page, table
from ops.write_paths import whole_appliance
from ops.write_settings import render_section

# An error's heading, by the declaring module. All others are responses.
AT_START = (
    "appliance.process.listeners",
    "appliance.server",
    "appliance.kernel.config",
    "appliance.workspace.datadir",
    "appliance.kernel.ownership",
    "appliance.workspace.migration",
    "appliance.workspace.upgrade",
)
ON_TERMINAL = re.compile(
    r"doctor|.*\.cli|appliance\.(audit\.log|busfile|export\.(?!wire)|process|recovery|reset"
    r"|sdk\.(?!network)|upgrade)"
)
FREE = FREE_ON_LOOPBACK | hub_scopes.free | free_scopes(CourierSettings())

COURIER = "Streams and views in the [courier](courier.md#access)"
# Scopes that no token has, and the caller's alternative. All others belong to `admin`.
NO_TOKEN_HAS = {
    "broker:subscribe": "`broker:admin`, or a member's signature",
    "courier:use": "a stream or view", "hooks:act": "a hook run's token",
    "relay:admin": "a relay admin's signature", "relay:agent": "an agent's signature",
}  # fmt: skip

# Decisions without a page. Numbers that neither have one were reserved, and never used.
SUPERSEDED = {62: "superseded by [46](0046-webhooks-of-meshes-are-sends.md)"}

# By the metric name's end.
UNITS = {
    "_timestamp_seconds": "s since 1970", "_seconds": "s", "_bytes": "bytes", "_ratio": "0 to 1",
}  # fmt: skip

WRITER = Principal("docs", "ci", frozenset({ADMIN}))


def render() -> dict[str, str]:
    """Render each page's text, by its path from the root folder."""
    import_named("", appliance, doctor)  # registers all errors and metrics
    routes, events = sample_appliance()
    pages = {
        "docs/reference/settings.md": settings_page(),
        "docs/reference/errors.md": errors_page(),
        "docs/reference/metrics.md": metrics_page(),
        "docs/reference/routes.md": routes_page(routes),
        "docs/reference/tokens.md": tokens_page(routes),
        "docs/reference/events.md": events_page(events),
        "docs/reference/cli.md": cli_page.render(),
        "docs/reference/checks.md": checks_page(),
        "docs/reference/files.md": files_page(),
        "docs/decisions/index.md": decisions_page(),
    }
    return {
        name: (generated.ROOT / name).read_text("utf-8").partition(MADE)[0] + made
        for name, made in pages.items()
    }


def sample_appliance() -> tuple[list[Route], list[dict[str, Any]]]:
    """Return a whole appliance's routes, and one event from every hub verb."""
    with whole_appliance() as whole:
        (hub,) = (part.hub for part in whole.subsystems if isinstance(part, HubSubsystem))
        exercise(hub)
        (entries,) = (p.entries for p in whole.subsystems if isinstance(p, EntriesSubsystem))
        address(hub, entries)
        (catchup,) = (p for p in whole.subsystems if isinstance(p, CatchUpSubsystem))
        hand_off(hub, catchup.catch_ups)
        (bounds,) = (p for p in whole.subsystems if isinstance(p, BoundsSubsystem))
        bound(hub, bounds.bounds)
        logged = hub.list_events(wire.EventsQuery(limit=1000), WRITER)
        return whole.routes(), msgspec.json.decode(logged)["events"]


def exercise(hub: Hub) -> None:
    """Call every verb with an event once, in a plausible order."""
    who = WRITER

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
    hub.store.write(plugin_writes.store_enrichments, "counts", seen, [finding])
    hub.patch_message(message_id, wire.MoveMessage(other, "later", 2), who)
    hub.patch_message(message_id, wire.DeleteMessage("ci", 3), who)


def address(hub: Hub, entries: Entries) -> None:
    """Write each inbox event."""
    names = ["ada", "bob", "cy"]
    command = wire.CreateMessage(
        "general/archive", "ci", "please review", names, 3600, "reassign:eve"
    )
    hub.create_message(command, WRITER)
    entries.acknowledge(entries_wire.Acknowledge([1], name="ada"), WRITER)
    entries.decline(entries_wire.Decline(2, "not my service", "bob"), WRITER)
    two_hours_later = ClockNote(read_clocks(hub.clock), total_ms=-7_200_000)
    hub.store.write(write_note, two_hours_later)
    entries.handle_due()


def hand_off(hub: Hub, catch_ups: CatchUps) -> None:
    """Write each event about topic states and pins."""
    topic = "general/archive"
    note = catchup_wire.WriteHandoff("Build 7 is fixed; the cache has to grow.", name="ada")
    catch_ups.write_handoff(topic, note, WRITER)
    catch_ups.resolve(topic, catchup_wire.ChangeTopic("the cache has grown", "ada"), WRITER)
    catch_ups.reopen(topic, catchup_wire.ChangeTopic("build 9 fails again", "ada"), WRITER)
    posted = hub.create_message(wire.CreateMessage(topic, "ada", "decided: 20 GB"), WRITER)
    message_id = msgspec.json.decode(posted.body)["message"]["id"]
    catch_ups.pin(message_id, catchup_wire.PinMessage("ada"), WRITER)
    catch_ups.unpin(message_id, catchup_wire.PinMessage("ada"), WRITER)


def bound(hub: Hub, bounds: Bounds) -> None:
    """Write each event about pauses and ceilings."""
    bounds.set_ceiling(bounds_wire.SetCeiling("ci", messages=10), WRITER)
    for _ in range(8):
        hub.create_message(wire.CreateMessage("general/archive", "ci", "passed"), WRITER)
    command = bounds_wire.BeginPause("ada", reason="deploy freeze", seconds=3600)
    bounds.pause(command, WRITER)
    bounds.resume(bounds_wire.EndPause("ada"), WRITER)


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
        row = (code(kind.code), kind.default_message, kind.default_hint)
        if kind.__module__.startswith(AT_START):
            start.append(row)
        elif ON_TERMINAL.match(kind.__module__):
            left = getattr(kind, "exit_code", EXIT_BY_KIND.get(kind.kind, EXIT_GENERAL))
            terminal.append((*row, str(left)))
        else:
            left = getattr(kind, "exit_code", EXIT_BY_STATUS.get(kind.status, EXIT_GENERAL))
            answers.append((*row[:1], str(kind.status), *row[1:], str(left)))
    return page(
        [
            "## Responses over HTTP, on sockets and in batches",
            "The last column is the command line's exit code.",
            table(("Code", "HTTP", "Message", "Hint", "Exit"), answers),
            "## At the appliance's start, and in the search for a workspace",
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
    name = name.removesuffix("_total")
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "count")


def routes_page(routes: Sequence[Route]) -> str:
    rows = [
        (
            code(f"{method} {route.path}"),
            operation.summary,
            " or ".join(dict.fromkeys(map(shown_scope, operation.scopes))) or "none",
            "yes" if operation.scope in FREE else "",
            "; ".join(filter(None, map(field_names, (operation.query, operation.body)))),
            str(operation.status),
        )
        for route in routes
        for method, operation in route.operations.items()
    ]
    return page([table(("Route", "Effect", "Scope", "Free", "Fields", "Status"), rows)])


def shown_scope(scope: str) -> str:
    """Return what a caller needs for a scope: the scope itself if tokens can have it, or a
    credential."""
    if scope in DECLARED_SCOPES:
        return code(scope)
    return NO_TOKEN_HAS.get(scope, code(ADMIN))


def tokens_page(routes: Sequence[Route]) -> str:
    """Render each scope that a token can have, with its permissions beside the included scopes."""
    permits: dict[str, list[str]] = {scope: [] for scope in sorted(DECLARED_SCOPES - {ADMIN})}
    for route in routes:
        for operation in route.operations.values():
            for scope in operation.scopes if len(operation.scopes) <= 2 else ():
                if scope in permits:
                    permits[scope].append(operation.summary)
    permits["bus:approve"].append("Decide about other agents' work")
    permits |= {
        ADMIN: ["Everything"],
        "streams:PATTERN:…": [COURIER],
        "views:PATTERN:read": [COURIER],
    }
    limits = dict.fromkeys(BY_CHANNEL, "channel") | dict.fromkeys(BY_MESH, "mesh")
    rows = [
        (code(scope), ". ".join(dict.fromkeys(texts)), limits.get(scope, ""))
        for scope, texts in permits.items()
    ]
    return page([table(("Scope", "Permits", "Limited to a"), rows)])


def field_names(kind: Any) -> str:
    """Return a request's field names; optional ones have a question mark."""
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
    """Replace times by one instant and ids by prefixes, so that every run gives one text."""
    text = re.sub(r"\b(ch|topic|msg|att)_[0-9A-Z]{26}\b", r"\1_…", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-02-04T20:00:00.000Z", text)
    return re.sub(r'(?<="day": ")[\d-]+', "2026-02-04", text)


def checks_page() -> str:
    """Render the index. People write each group's page, because it is all prose."""
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


def files_page() -> str:
    rows = [
        (
            code(row.path),
            row.mode,
            row.contents,
            f"as {code(row.kind)}" if row.kind else "no",
            ", ".join(
                f"[{code(name)}](checks/{name.partition('.')[0]}.md#{name.replace('.', '')})"
                for name in row.checks
            ),
            code(row.recovered),
        )
        for row in CONTENTS
    ]
    heads = ("Path", "Mode", "Contents", "In backups", "Checked by", "Recovered by")
    return page([table(heads, rows)])


def decisions_page() -> str:
    titles = {}
    for file in (generated.ROOT / "docs/decisions").glob("[0-9]*.md"):
        number, _, title = file.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(". ")
        titles[int(number)] = f"[{title}]({file.name})"
    numbers = range(1, max(titles) + 1)
    rows = [(str(number), titles.get(number) or SUPERSEDED.get(number, "number not used"))
            for number in numbers]  # fmt: skip
    return page([table(("Number", "Decision"), rows)])


if __name__ == "__main__":
    sys.exit(generated.write(render()))

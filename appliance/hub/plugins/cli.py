"""`agentlip plugin`, `re-enrich`, `re-extract`: how plugins are, and having them work again."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.hub.cli_reach import hub_client, segment
from appliance.hub.plugins.wire import Isolation, gaps

app = plain_app("Plugins: how they are, and what they found. They are named in agentlip.toml.")
re_enrich_app = plain_app()
re_extract_app = plain_app()

PATH = "/api/v1/plugins"

PluginFlag = Annotated[
    list[str] | None, typer.Option("--plugin", help="Only this one; may be repeated.")
]


@app.command("list")
@common
def list_plugins(session: Session) -> None:
    """Each plugin's state, its breaker, and how far it is behind the log."""
    rows = hub_client(session).get(PATH)["plugins"]
    if session.machine:
        session.table(rows, [], empty="")
        return
    shown = [
        {
            **row,
            "shut_in": _isolation(row["isolation"]),
            "by": _held_by(row["isolation"]),
            "why": row["reason"],
        }
        for row in rows
    ]
    columns = [("NAME", "name"), ("TYPE", "type"), ("STATE", "state"), ("BREAKER", "breaker")]
    columns += [("CURSOR", "cursor"), ("LAG", "lag"), ("DONE", "done"), ("FAILED", "failed")]
    columns += [("ISOLATION", "shut_in"), ("BY", "by"), ("REASON", "why")]
    session.table(shown, columns, empty="no plugins; name some in agentlip.toml: docs/plugins.md")


@app.command("found")
@common
def found_in(
    session: Session,
    message_id: Annotated[str, typer.Option("--message-id", help="Id of the message.")],
) -> None:
    """What linkifiers found in a message, as far as it still speaks of its text."""
    answer = hub_client(session).get(f"/api/v1/messages/{segment(message_id)}/enrichments")
    rows = answer["enrichments"]
    if not session.machine:
        rows = [{**row, "at": "{start}-{end}".format(**row["span"])} for row in rows]
    columns = [("PLUGIN", "plugin"), ("KIND", "kind"), ("SPAN", "at"), ("DATA", "data")]
    session.table(rows, columns, empty="nothing was found in it")


@re_enrich_app.command()
@common
def re_enrich(
    session: Session,
    since: Annotated[
        int, typer.Option("--since", min=0, help="Messages changed after this event; 0: all.")
    ],
    plugin: PluginFlag = None,
) -> None:
    """Have plugins go through the log again: agentlip re-enrich --since 0 --plugin urls."""
    answer = hub_client(session).post(f"{PATH}/re-enrich", _body(plugin, since=since))
    if session.machine:
        session.answer(answer, "")
        return
    for row in answer["taken"]:
        sentence = "{plugin}: the log from event {after} to {until} will be gone through"
        session.answer(row, sentence.format(**row))
    if not answer["taken"]:
        note("no plugin is in use; see: agentlip plugin list")


@re_extract_app.command()
@common
def re_extract(
    session: Session,
    message_id: Annotated[str, typer.Option("--message-id", help="Id of the message.")],
    plugin: PluginFlag = None,
) -> None:
    """Have extractors look at one message again: agentlip re-extract --message-id msg_…."""
    answer = hub_client(session).post(f"{PATH}/re-extract", _body(plugin, message_id=message_id))
    rows = answer["results"]
    if session.as_json:
        session.answer(answer, "")
        return
    columns = [("PLUGIN", "plugin"), ("OUTCOME", "outcome"), ("NEW", "items")]
    session.table(rows, columns, empty="no extractor is in use; see: agentlip plugin list")


def _body(plugins: list[str] | None, **fields: Any) -> dict[str, Any]:
    return {**fields, "plugins": plugins} if plugins else fields


def _isolation(found: dict[str, Any] | None) -> str:
    """`not started`, or what the plugin may do, beside reading what the settings name."""
    if found is None:
        return "not started"
    open_ = gaps(msgspec.convert(found, Isolation), network=False, subprocesses=False)
    return f"OPEN: {', '.join(open_)}" if open_ else "shut in"


def _held_by(found: dict[str, Any] | None) -> str:
    """What it was at its last start, as the kernel confirmed it."""
    if found is None:
        return ""
    isolation = msgspec.convert(found, Isolation)
    held = [] if isolation.uid is None else [f"uid {isolation.uid}"]
    held += [f"landlock {isolation.landlock}"] if isolation.landlock else []
    held += ["seccomp"] if isolation.seccomp else []
    held += ["pid namespace"] if isolation.pid_namespace else []
    return ", ".join(held) or "nothing"

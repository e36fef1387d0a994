"""Implements `agentlip plugin`, `re-enrich`: plugin status, and reprocessing."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Columns, Session, note, plain_app
from appliance.hub.cli_reach import segment
from appliance.hub.plugins.wire import Isolation, gaps

app = plain_app("Plugins: their state and results. [plugins] configures them.", "Extensions/plugin")
re_enrich_app = plain_app(listed="Extensions/re-enrich")

PATH = "/api/v1/plugins"

PluginFlag = Annotated[
    list[str] | None, typer.Option("--plugin", help="Only this plugin; may be repeated.")
]


@app.command("list")
def list_plugins(session: Session) -> None:
    """List plugins with state, circuit breaker, and lag behind the log."""
    rows = session.hub().get(PATH)["plugins"]
    session.table(
        rows,
        [("NAME", "name"), ("TYPE", "type"), ("STATE", "state"), ("BREAKER", "breaker"),
         ("CURSOR", "cursor"), ("LAG", "lag"), ("DONE", "done"), ("FAILED", "failed"),
         ("ISOLATION", lambda row: _isolation(row["isolation"])), ("REASON", "reason")],
        empty="no plugins; add some to agentlip.toml: docs/how-to/plugins.md",
    )  # fmt: skip


@app.command("found")
def list_enrichments(
    session: Session,
    message_id: Annotated[str, typer.Option("--message-id", help="Message id.")],
) -> None:
    """Show a message's enrichments: what plugins extracted from its text."""
    answer = session.hub().get(f"/api/v1/messages/{segment(message_id)}/enrichments")
    columns: Columns = [
        ("PLUGIN", "plugin"), ("KIND", "kind"),
        ("SPAN", lambda row: "{start}-{end}".format(**row["span"])), ("DATA", "data"),
    ]  # fmt: skip
    session.table(answer["enrichments"], columns, empty="no enrichments")


@re_enrich_app.command()
def re_enrich(
    session: Session,
    since: Annotated[
        int,
        typer.Option("--since", min=0, help="Reprocess messages changed after this event; 0: all."),
    ],
    plugin: PluginFlag = None,
) -> None:
    """Reprocess the event log with plugins.

    Example: agentlip re-enrich --since 0 --plugin urls
    """
    answer = session.hub().post(f"{PATH}/re-enrich", {"since": since, "plugins": plugin or None})
    if session.machine:
        session.answer(answer, "")
        return
    for row in answer["taken"]:
        sentence = "{plugin}: events {after} to {until} will be reprocessed"
        session.answer(row, sentence.format(**row))
    if not answer["taken"]:
        note("no plugin is in use; see: agentlip plugin list")


def _isolation(report: dict[str, Any] | None) -> str:
    """Return `not started`, `shut in`, or what the plugin can do without permission."""
    if report is None:
        return "not started"
    open_ = gaps(msgspec.convert(report, Isolation), network=False, subprocesses=False)
    return f"OPEN: {', '.join(open_)}" if open_ else "shut in"

"""`agentlip plugin`, `re-enrich`: status of plugins, and reprocessing."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Columns, Session, note, plain_app
from appliance.hub.cli_reach import segment
from appliance.hub.plugins.change_file import ChangeFile
from appliance.hub.plugins.wire import Isolation, gaps

app = plain_app("Plugins: their state and results. [plugins] configures them.", "Extensions/plugin")
re_enrich_app = plain_app(listed="Extensions/re-enrich")

PATH = "/api/v1/plugins"
PROGRESS_ROWS = 10_000  # between two lines of progress
REFUSED_LISTED_MAX = 100

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
         ("ISOLATION", lambda row: _isolation(row["isolation"])),
         ("BY", lambda row: _isolated_by(row["isolation"])), ("REASON", "reason")],
        empty="no plugins; add some to agentlip.toml: docs/how-to/plugins.md",
    )  # fmt: skip


@app.command("apply")
def apply_changes(
    session: Session,
    file: Annotated[Path, typer.Argument(help="File of results: NAME.jsonl.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the changes.")] = False,
) -> None:
    """Store the results of a linkifier that another program computed.

    Results for messages that changed meanwhile are dropped. After an interruption, run it again.

    Example: agentlip plugin apply changes/references.jsonl
    """
    changes = ChangeFile(file)
    client, plugin = session.hub(), changes.header.plugin
    counts = {"rows": changes.manifest.rows, "stored": 0, "same": 0, "stale": 0, "refused": 0}
    refused: list[dict[str, Any]] = []
    done = 0
    for batch in changes.batches():
        body = {"plugin": plugin, "changes": batch, "dry_run": dry_run}
        answer = client.post(f"{PATH}/apply", body)
        for name in ("stored", "same", "stale"):
            counts[name] += answer[name]
        counts["refused"] += len(answer["refused"])
        refused = (refused + answer["refused"])[:REFUSED_LISTED_MAX]
        done += len(batch)
        if done % PROGRESS_ROWS < len(batch):
            session.note(f"{done:,} of {changes.manifest.rows:,} changes")
    verb = "would be stored" if dry_run else "stored"
    sentence = (
        f"{plugin}: {counts['stored']:,} {verb}, {counts['same']:,} the same,"
        f" {counts['stale']:,} stale, {counts['refused']:,} refused"
    )
    session.answer({"plugin": plugin, "dry_run": dry_run, **counts, "reasons": refused}, sentence)


@app.command("found")
def list_enrichments(
    session: Session,
    message_id: Annotated[str, typer.Option("--message-id", help="Id of the message.")],
) -> None:
    """Show what linkifiers found in a message's current text."""
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
    """`not started`, `shut in`, or what the plugin can do without permission."""
    if report is None:
        return "not started"
    open_ = gaps(msgspec.convert(report, Isolation), network=False, subprocesses=False)
    return f"OPEN: {', '.join(open_)}" if open_ else "shut in"


def _isolated_by(report: dict[str, Any] | None) -> str:
    """The means of isolation at the last start, as confirmed by the kernel."""
    if report is None:
        return ""
    isolation = msgspec.convert(report, Isolation)
    means = [] if isolation.uid is None else [f"uid {isolation.uid}"]
    means += [f"landlock {isolation.landlock}"] if isolation.landlock else []
    means += ["seccomp"] if isolation.seccomp else []
    means += ["pid namespace"] if isolation.pid_namespace else []
    return ", ".join(means) or "nothing"

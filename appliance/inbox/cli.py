"""`agentlip inbox`: hub entries for a name, mesh messages, topic subscriptions."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from appliance.cli_support import Columns, Row, Session, note, plain_app
from appliance.hub.entries import cli as entries

app = plain_app(
    "Your hub entries (--mine), and mesh messages.\n\n"
    "Examples: agentlip inbox mine --wait 60; agentlip inbox list --topic alerts",
    "Messages/inbox",
)
app.info.cls = entries.InboxGroup
for name, verb in entries.VERBS.items():
    app.command(name)(verb)

MeshFlag = Annotated[str | None, typer.Option("--mesh", help="Mesh name (default: inbox.mesh).")]
TopicFlag = Annotated[str | None, typer.Option("--topic", help="Only messages in this topic.")]
FromFlag = Annotated[
    str | None, typer.Option("--from", help="Only messages from this member: key or name.")
]
OthersFlag = Annotated[
    bool, typer.Option("--others", help="Leave out messages sent by this appliance.")
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")]


def _where(message: Row) -> str:
    return f"#{message['topic']}" if message["topic"] else str(message["destination_kind"])


COLUMNS: Columns = [
    ("NUMBER", "number"), ("RECEIVED", "received_at"), ("WHERE", _where), ("FROM", "sender_name"),
    ("MESSAGE", "body"),
]  # fmt: skip
WAIT_SECONDS = 25
NO_BROKER = "no broker"
PATH = "/v1/inbox"


@app.command("list")
def list_messages(
    session: Session,
    since: Annotated[
        str | None,
        typer.Option("--since", help="After a number or time (default: the newest)."),
    ] = None,
    topic: TopicFlag = None,
    sender: FromFlag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Row limit.")] = 20,
    mesh: MeshFlag = None,
    others: OthersFlag = False,
) -> None:
    """List received messages, oldest first.

    Example: agentlip inbox list --since 2026-02-04T20:00:00Z --from alice
    """
    filters = _filters(topic, sender, mesh, others)
    page = session.hub().get(PATH, since=since, limit=limit, **filters)
    session.table(page["messages"], COLUMNS, empty="no messages", answer=page)


@app.command("watch")
def watch(
    session: Session,
    since: Annotated[
        str | None, typer.Option("--since", help="After a number or time (default: from now).")
    ] = None,
    topic: TopicFlag = None,
    sender: FromFlag = None,
    mesh: MeshFlag = None,
    others: OthersFlag = False,
    exit_after: Annotated[
        int | None, typer.Option("--exit-after", min=1, help="Exit after this many messages.")
    ] = None,
) -> None:
    """Print messages as they arrive, each once, across the appliance's restarts, until Ctrl-C.

    Example: agentlip inbox watch --topic alerts --jsonl
    """
    messages = _follow(session, since, _filters(topic, sender, mesh, others))
    for printed, message in enumerate(messages, start=1):
        session.line(message, COLUMNS)
        if printed == exit_after:
            return


@app.command("topics")
def list_topics(session: Session, mesh: MeshFlag = None) -> None:
    """List a mesh's topics and whether they are subscribed.

    Example: agentlip inbox topics
    """
    session.table(
        session.hub().rows("/v1/topic/list", "topics", mesh=mesh),
        [("RECEIVED", "subscribed"), ("TOPIC", "name")],
        empty="no topics; subscribe to one with 'agentlip inbox subscribe TOPIC'",
    )


@app.command("subscribe")
def subscribe(session: Session, topic: TopicArgument, mesh: MeshFlag = None) -> None:
    """Subscribe to a topic, to receive its messages.

    Example: agentlip inbox subscribe alerts
    """
    answer = _change(session, "subscribe", topic, mesh)
    session.answer(answer, f"subscribed to #{topic} in {answer['mesh']}")


@app.command("unsubscribe")
def unsubscribe(session: Session, topic: TopicArgument, mesh: MeshFlag = None) -> None:
    """Unsubscribe from a topic. Received messages are kept.

    Example: agentlip inbox unsubscribe alerts
    """
    answer = _change(session, "unsubscribe", topic, mesh)
    done = "unsubscribed from" if answer["changed"] else "was not subscribed to"
    session.answer(answer, f"{done} #{topic} in {answer['mesh']}")


@app.command("peers")
def peers(session: Session, mesh: MeshFlag = None) -> None:
    """List a mesh's members and whether they are connected.

    Example: agentlip inbox peers --mesh lab
    """
    session.table(
        session.hub().rows("/v1/peers", "peers", mesh=mesh),
        [("CONNECTED", "connected"), ("STATE", "state"), ("NAME", "name"), ("KEY", "pubkey")],
        empty="no members",
    )


@app.command("profile")
def profile(
    session: Session,
    name: Annotated[
        str | None, typer.Option("--name", help="New name in the mesh; the broker stores the name.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="idle, working or dnd (do not disturb).")
    ] = None,
    summary: Annotated[
        str | None, typer.Option("--summary", help="This appliance's work, as text.")
    ] = None,
    mesh: MeshFlag = None,
) -> None:
    """Change the appliance's profile in a mesh.

    Example: agentlip inbox profile --name build-machine --status working
    """
    body = {"name": name, "status": status, "summary": summary, "mesh": mesh}
    answer = session.hub().post("/v1/profile", body, "")
    summary_line = f"{answer['mesh']}: {answer['status']}"
    session.answer(answer, f"{summary_line}; renamed to {name}" if name else summary_line)


@app.command("health")
def health(session: Session, mesh: MeshFlag = None) -> None:
    """Show a mesh's health: link state, lag, queue. The exit code is 3 if the link is down.

    Example: agentlip inbox health
    """
    answer = session.hub().get("/v1/health", mesh=mesh)
    state = _link_state(answer)
    session.answer(answer, f"{answer['mesh']}: {state}; {answer['queue_depth']} pending sends")
    raise typer.Exit(0 if answer["connected"] or state == NO_BROKER else 3)


@app.command("runs")
def runs(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Row limit.")] = 20,
    mesh: MeshFlag = None,
) -> None:
    """List hook runs, newest first.

    Example: agentlip inbox runs --limit 5
    """
    rows, _ = session.hub().page(
        "/v1/hooks/runs", "runs", limit, cursor="before", key="number", mesh=mesh
    )
    session.table(
        rows,
        [("AT", "at"), ("OUTCOME", "outcome"), ("MS", "duration_ms"), ("HOOK", "hook"),
         ("RUN", "id")],
        empty="no hook runs yet",
    )  # fmt: skip


def _link_state(health: dict[str, Any]) -> str:
    link = next((link for link in health["links"] if link["mesh"] == health["mesh"]), None)
    return NO_BROKER if link is None else f"{link['state']} {link['reason']}".strip()


def _filters(
    topic: str | None, sender: str | None, mesh: str | None, others: bool
) -> dict[str, Any]:
    return {"topic": topic, "from": sender, "mesh": mesh, "own": "false" if others else None}


def _follow(session: Session, since: str | None, filters: dict[str, Any]) -> Iterator[Any]:
    """Poll with a cursor, so that no message is repeated or left out."""
    from appliance.sdk.http import PATIENT

    hub = session.hub(PATIENT)
    health = hub.get("/v1/health", mesh=filters["mesh"])
    if not health["connected"] and health["mesh"] != "network":  # which needs no broker
        note(f"waiting for a link to the mesh {health['mesh']}: {_link_state(health)}")
    if since is None:
        since = str(hub.get(PATH, limit=1, **filters)["next"])
    while True:
        page = hub.get(PATH, since=since, limit=500, wait=WAIT_SECONDS, **filters)
        yield from page["messages"]
        since = str(page["next"])


def _change(session: Session, verb: str, topic: str, mesh: str | None) -> Any:
    body = {"topic": topic.removeprefix("#"), "mesh": mesh or None}
    return session.hub().post(f"/v1/topic/{verb}", body, "")

"""`agentlip inbox`: what meshes sent here, and what is received from them."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, plain, plain_app, write_now

app = plain_app(
    "What meshes sent here: list, watch, topics.\n\nExample: agentlip inbox list --topic alerts"
)

MeshFlag = Annotated[str | None, typer.Option("--mesh", help="Another mesh than the usual one.")]
TopicFlag = Annotated[str | None, typer.Option("--topic", help="Only of this topic.")]
FromFlag = Annotated[
    str | None, typer.Option("--from", help="Only of this member: its key or its name.")
]
OthersFlag = Annotated[bool, typer.Option("--others", help="Leave out what we sent ourselves.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
COLUMNS = [
    ("NUMBER", "number"),
    ("RECEIVED", "received_at"),
    ("WHERE", "where"),
    ("FROM", "sender_name"),
    ("MESSAGE", "body"),
]
WAIT_SECONDS = 25


@app.command("list")
@common
def list_messages(
    session: Session,
    since: Annotated[
        str | None,
        typer.Option("--since", help="After this number, or this time (default: the newest)."),
    ] = None,
    topic: TopicFlag = None,
    sender: FromFlag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    mesh: MeshFlag = None,
    others: OthersFlag = False,
) -> None:
    """Messages received, oldest first.

    Example: agentlip inbox list --since 2026-02-04T20:00:00Z --from alice
    """
    page = _page(_hub(session), since, topic, sender, limit, mesh, others)
    if session.as_json:
        session.answer(page, "")
        return
    rows = page["messages"]
    if not session.machine:
        rows = [_row(row) for row in rows]
    session.table(rows, COLUMNS, empty="no messages")


@app.command("watch")
@common
def watch(
    session: Session,
    since: Annotated[
        str | None, typer.Option("--since", help="After this number or time (default: from now).")
    ] = None,
    topic: TopicFlag = None,
    sender: FromFlag = None,
    mesh: MeshFlag = None,
    others: OthersFlag = False,
    exit_after: Annotated[
        int | None, typer.Option("--exit-after", min=1, help="End after so many messages.")
    ] = None,
) -> None:
    """Messages as they come, each once, through restarts of the appliance. Ends with Ctrl-C.

    Example: agentlip inbox watch --topic alerts --jsonl
    """
    messages = _follow(session, since, topic, sender, mesh, others)
    for printed, message in enumerate(messages, start=1):
        if session.machine:
            write_now(msgspec.json.encode(message))
        else:
            row = _row(message)
            write_now("  ".join(plain(row[key]) for _, key in COLUMNS).encode())
        if printed == exit_after:
            return


@app.command("topics")
@common
def list_topics(session: Session, mesh: MeshFlag = None) -> None:
    """Topics of a mesh, and which are received.

    Example: agentlip inbox topics
    """
    session.table(
        _listed(_hub(session), "/v1/topic/list", "topics", mesh),
        [("RECEIVED", "subscribed"), ("TOPIC", "name")],
        empty="no topics; receive one with 'agentlip inbox subscribe TOPIC'",
    )


@app.command("subscribe")
@common
def subscribe(session: Session, topic: TopicArgument, mesh: MeshFlag = None) -> None:
    """Receive what is posted to a topic.

    Example: agentlip inbox subscribe alerts
    """
    answer = _change(session, "subscribe", topic, mesh)
    session.answer(answer, f"#{topic} of {answer['mesh']} is received")


@app.command("unsubscribe")
@common
def unsubscribe(session: Session, topic: TopicArgument, mesh: MeshFlag = None) -> None:
    """Receive it no more; what came stays.

    Example: agentlip inbox unsubscribe alerts
    """
    answer = _change(session, "unsubscribe", topic, mesh)
    session.answer(answer, f"#{topic} of {answer['mesh']} is not received")


@app.command("peers")
@common
def peers(session: Session, mesh: MeshFlag = None) -> None:
    """Members of a mesh, and who is connected.

    Example: agentlip inbox peers --mesh lab
    """
    session.table(
        _listed(_hub(session), "/v1/peers", "peers", mesh),
        [("CONNECTED", "connected"), ("STATE", "state"), ("NAME", "name"), ("KEY", "pubkey")],
        empty="no members",
    )


@app.command("profile")
@common
def profile(
    session: Session,
    name: Annotated[
        str | None, typer.Option("--name", help="Another name in the mesh; the broker keeps it.")
    ] = None,
    status: Annotated[str | None, typer.Option("--status", help="idle, working or dnd.")] = None,
    summary: Annotated[str | None, typer.Option("--summary", help="What it works on.")] = None,
    mesh: MeshFlag = None,
) -> None:
    """What this appliance says of itself in a mesh: change some of it.

    Example: agentlip inbox profile --name build-machine --status working
    """
    said = {"name": name, "status": status, "summary": summary, "mesh": mesh}
    body = {key: value for key, value in said.items() if value is not None}
    answer = _hub(session).post("/v1/profile", body, "")
    told = f"{answer['mesh']}: {answer['status']}"
    session.answer(answer, f"{told}; the name is {name} now" if name else told)


@app.command("health")
@common
def health(session: Session, mesh: MeshFlag = None) -> None:
    """How it stands with a mesh: link, lag, queue. Exit code 3 when the link is down.

    Example: agentlip inbox health
    """
    answer = _hub(session).get("/v1/health", mesh=mesh)
    link = next((one for one in answer["links"] if one["mesh"] == answer["mesh"]), None)
    state = "no broker" if link is None else f"{link['state']} {link['reason']}".strip()
    session.answer(answer, f"{answer['mesh']}: {state}; {answer['queue_depth']} sends wait")
    raise typer.Exit(0 if answer["connected"] or link is None else 3)


@app.command("runs")
@common
def runs(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    mesh: MeshFlag = None,
) -> None:
    """Runs of hooks, newest first.

    Example: agentlip inbox runs --limit 5
    """
    session.table(
        _runs(_hub(session), limit, mesh),
        [("AT", "at"), ("OUTCOME", "outcome"), ("MS", "duration_ms"), ("HOOK", "hook"),
         ("RUN", "id")],
        empty="no hook has run",
    )  # fmt: skip


def _listed(hub: Any, path: str, name: str, mesh: str | None) -> list[Any]:
    """All rows, page by page."""
    rows: list[Any] = []
    after = None
    while True:
        page = hub.get(path, mesh=mesh, after=after)
        rows += page[name]
        if not page.get("has_more"):
            return rows
        after = page["next"]


def _runs(hub: Any, limit: int, mesh: str | None) -> list[Any]:
    """Page by page: the appliance limits a page in bytes too."""
    rows: list[Any] = []
    before = None
    while True:
        page = hub.get("/v1/hooks/runs", mesh=mesh, limit=limit - len(rows), before=before)
        rows += page["runs"]
        if not page.get("has_more") or not page["runs"] or len(rows) >= limit:
            return rows
        before = rows[-1]["number"]


def _follow(
    session: Session,
    since: str | None,
    topic: str | None,
    sender: str | None,
    mesh: str | None,
    others: bool,
) -> Iterator[Any]:
    """Long polls with a cursor: what was told is never told again, and nothing is left out."""
    from appliance.sdk.http import PATIENT

    hub = _hub(session, PATIENT)
    if since is None:
        since = str(_page(hub, None, topic, sender, 1, mesh, others)["next"])
    while True:
        page = _page(hub, since, topic, sender, 500, mesh, others, WAIT_SECONDS)
        yield from page["messages"]
        since = str(page["next"])


def _page(
    hub: Any,
    since: str | None,
    topic: str | None,
    sender: str | None,
    limit: int,
    mesh: str | None,
    others: bool,
    wait: int | None = None,
) -> Any:
    asked = {"since": since, "topic": topic, "from": sender, "limit": limit, "mesh": mesh,
             "wait": wait, "own": "false" if others else None}  # fmt: skip
    return hub.get("/v1/inbox", **asked)


def _change(session: Session, verb: str, topic: str, mesh: str | None) -> Any:
    body = {"topic": topic.removeprefix("#"), **({"mesh": mesh} if mesh else {})}
    return _hub(session).post(f"/v1/topic/{verb}", body, "")


def _row(message: Any) -> dict[str, Any]:
    topic = message["topic"]
    where = f"#{topic}" if topic else message["destination_kind"]
    return {**message, "where": where}


def _hub(session: Session, retry: Any = None) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace), retry)

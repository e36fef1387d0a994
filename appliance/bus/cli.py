"""`agentlip bus`: messages, claims and cursors of a team of agents, without a server."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from appliance.busfile import claims, consumer, dependencies, jsonl, messages, retention
from appliance.busfile import search as fulltext
from appliance.busfile.blobs import BLOB_BYTES_MAX
from appliance.busfile.file import BusPaths, connect, find_paths, snapshot, transaction
from appliance.busfile.messages import BusMessage
from appliance.busfile.worker.context import AGENT, agent_name
from appliance.cli_support import Session, plain_app, text_of, until_signalled
from appliance.kernel.clock import DAY_MS, SystemClock, iso
from appliance.kernel.errors import Invalid
from appliance.workspace.blobs import names_elsewhere
from appliance.workspace.datadir import DataDir

app = plain_app(
    "An agent team on one machine: messages, claims, cursors. No server is needed.\n\n"
    "Example: agentlip bus claim task-7 --agent ada",
    "Agent teams, without a server/bus",
)
cursor = plain_app("Agent cursors: list, retire.")
app.add_typer(cursor, name="cursor")
T = TypeVar("T")
CLOCK = SystemClock()


def own_name(named: str = "") -> str:
    """Return the named agent, else that of the worktree's task, else that of AGENTLIP_AGENT."""
    if named:
        return named
    if name := agent_name():
        return name
    raise Invalid("your name is missing", hint=f"add --agent NAME, or set {AGENT}")


AgentFlag = Annotated[
    str,
    typer.Option(
        "--agent",
        help=f"Your name on the bus (default: the worktree's task, else {AGENT}).",
        callback=own_name, show_default=False,
    ),
]  # fmt: skip
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A task, 'path:GLOB', or 'slot:NAME:NUMBER'.")
]
FenceFlag = Annotated[
    int | None, typer.Option("--fence", help="Only if the claim still has this fence.")
]
LeaseFlag = Annotated[
    float, typer.Option("--lease", min=0.001, max=3600, help="Seconds until the claim ends.")
]
WaitFlag = Annotated[
    float, typer.Option("--wait", min=0, max=86_400, help="Wait up to this many seconds.")
]
LimitFlag = Annotated[int, typer.Option("--limit", min=1, max=500, help="Row limit.")]
LISTED = [
    ("SEQ", "seq"), ("TIME", "time"), ("FROM", "from_agent"), ("TO", "to"), ("TYPE", "type"),
    ("TASK", "correlation_id"), ("PAYLOAD", "text"),
]  # fmt: skip


@contextmanager
def open_bus(session: Session, *, create: bool = True) -> Iterator[tuple[BusPaths, Any]]:
    """Open the workspace's bus. Commands that only read don't create it."""
    paths = find_paths(session.workspace)
    with closing(connect(paths, create=create)) as connection:
        yield paths, connection


def write(session: Session, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call `function(connection, …)` in a transaction that writes."""
    with open_bus(session) as (_, connection), transaction(connection):
        return function(connection, *arguments, **options)


def read(session: Session, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call `function(connection, …)` in a transaction that reads."""
    with open_bus(session, create=False) as (_, connection), snapshot(connection):
        return function(connection, *arguments, **options)


@app.command("send")
def send(
    session: Session,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Type: task_done, or your own.")],
    payload: Annotated[
        str | None, typer.Argument(help="Payload as JSON; - reads it from standard input.")
    ] = None,
    agent: AgentFlag = "",
    to: Annotated[str | None, typer.Option("--to", help="One agent; without it, all.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="The task it is about (correlation_id).")
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option("--reply-to", help="The message that this one answers, by id.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Message id, for a retry; random by default.")
    ] = None,
) -> None:
    """Send a message to one agent or to all.

    Example: agentlip bus send task_done '{"commit": "a1b2c3d4"}' --task task-7 --agent ada
    """
    from appliance.sdk.bus import FileBus

    value = _json(payload and text_of(payload, BLOB_BYTES_MAX))
    with FileBus(agent, session.workspace) as bus:
        published = bus.publish(type_, value, to=to, task=task, reply_to=reply_to, id=id_)
    duplicate = " (sent before)" if published.duplicate else ""
    session.answer(
        msgspec.to_builtins(published), f"sent {published.id} as {published.seq}{duplicate}"
    )


@app.command("poll")
def poll(
    session: Session,
    agent: AgentFlag = "",
    limit: LimitFlag = 100,
    wait: WaitFlag = 0,
    ack_them: Annotated[
        bool, typer.Option("--ack", help="Ack the messages once they are printed.")
    ] = False,
) -> None:
    """Print an agent's unacked messages, oldest first.

    Unacked messages are printed again: handle all in order, then ack the last one.

    Example: agentlip bus poll --agent ada --wait 60 --json
    """
    paths = find_paths(session.workspace)
    batch = consumer.poll(paths, CLOCK, agent, limit, wait)
    print_messages(session, paths, batch, "no new messages")
    sys.stdout.flush()
    if ack_them and batch:
        write(session, messages.ack, CLOCK.now_ms(), agent, batch[-1].seq)


@app.command("ack")
def ack(
    session: Session,
    seq: Annotated[int, typer.Argument(metavar="SEQ", help="Message number.")],
    agent: AgentFlag = "",
) -> None:
    """Report that a message and all before it are handled.

    Example: agentlip bus ack 12 --agent ada
    """
    position = write(session, messages.ack, CLOCK.now_ms(), agent, seq)
    session.answer({"agent": agent, "last_acked_seq": position}, f"{agent} has acked {position}")


@app.command("tail")
def tail(
    session: Session,
    limit: LimitFlag = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new messages until Ctrl-C.")
    ] = False,
    task: Annotated[
        str | None, typer.Option("--task", help="Only messages about this task.")
    ] = None,
    replies: Annotated[
        str | None, typer.Option("--replies", help="Only this message and the chain it answers.")
    ] = None,
) -> None:
    """Print the last messages, whoever they are for.

    Example: agentlip bus tail --follow
    """
    with open_bus(session, create=follow) as (paths, connection):
        with snapshot(connection):
            position = messages.head(connection)
            batch = messages.newest(connection, limit, task)
            if replies is not None:
                batch = messages.reply_chain(connection, replies)
        if not follow:
            print_messages(session, paths, batch, "no messages")
            return
        coming = consumer.follow(paths, None, position)
        new = (message for message in coming if task in (None, message.correlation_id))
        with until_signalled():
            for message in itertools.chain(batch, new):
                session.line(_row(session, paths, message), LISTED)


@app.command("search")
def search(
    session: Session,
    words: Annotated[list[str], typer.Argument(help="Words that a message must have.")],
    limit: LimitFlag = 50,
) -> None:
    """Find messages by words, newest first. Payloads above 4,096 bytes are not searched.

    Example: agentlip bus search merge conflict
    """
    with open_bus(session, create=False) as (paths, connection):
        rows = fulltext.search(connection, " ".join(words), limit)
        print_messages(session, paths, rows, "no message has these words")


@app.command("claim")
def claim(
    session: Session,
    task: TaskArgument,
    agent: AgentFlag = "",
    lease: LeaseFlag = claims.LEASE_MS / 1000,
    wait: WaitFlag = 0,
    slots: Annotated[
        int | None, typer.Option("--slots", help="Claim one slot of TASK, which has this many.")
    ] = None,
) -> None:
    """Claim a task, a path or a slot. The first agent wins; renew the claim while you work.

    Examples: agentlip bus claim task-7 --agent ada;
    agentlip bus claim 'path:src/api/**' --agent ada; agentlip bus claim gpu --slots 2 --agent ada
    """
    lease_ms = int(lease * 1000)

    def attempt(connection: Any, now_ms: int) -> claims.BusClaim:
        if slots is not None:
            return claims.claim_slot(connection, now_ms, task, slots, agent, lease_ms)
        return claims.claim(connection, now_ms, task, agent, lease_ms)

    paths = find_paths(session.workspace)
    _answer_claim(session, claims.wait(paths, CLOCK, wait, attempt), "claimed")


@app.command("renew")
def renew(
    session: Session,
    task: TaskArgument,
    agent: AgentFlag = "",
    fence: FenceFlag = None,
    lease: LeaseFlag = claims.LEASE_MS / 1000,
) -> None:
    """Renew a claim. Do it every 30 seconds while you work.

    Example: agentlip bus renew task-7 --agent ada
    """
    lease_ms = int(lease * 1000)
    renewed = write(session, claims.renew, CLOCK.now_ms(), task, agent, fence, lease_ms)
    _answer_claim(session, renewed, "renewed")


@app.command("release")
def release(
    session: Session, task: TaskArgument, agent: AgentFlag = "", fence: FenceFlag = None
) -> None:
    """Release a claim for other agents.

    Example: agentlip bus release task-7 --agent ada
    """
    released = write(session, claims.release, task, agent, fence)
    text = f"released {task}" if released else f"{task} was not claimed"
    session.answer({"task_id": task, "released": released}, text)


@app.command("claims")
def list_claims(session: Session) -> None:
    """List the claims, also those that have expired.

    Example: agentlip bus claims
    """
    now_ms = CLOCK.now_ms()
    rows = [
        {**msgspec.to_builtins(row), "left_seconds": max(0, row.lease_until_ms - now_ms) // 1000}
        for row in read(session, claims.all_claims)
    ]
    columns = [("TASK", "task_id"), ("AGENT", "claimed_by"), ("FENCE", "fence"),
               ("LEFT S", "left_seconds")]  # fmt: skip
    session.table(rows, columns, empty="no claims")


@app.command("need")
def need(
    session: Session,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task that waits.")],
    needs: Annotated[
        str, typer.Argument(metavar="OTHER", help="A task that has to be done first.")
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the dependency.")] = False,
) -> None:
    """Let a task wait until another one is done.

    Example: agentlip bus need tests api
    """
    write(session, dependencies.remove if remove else dependencies.add, task, needs)
    after = write(session, dependencies.needs_of, task)
    session.answer({"task_id": task, "needs": after}, f"{task} needs: {', '.join(after) or '-'}")


@app.command("ready")
def ready(session: Session) -> None:
    """List tasks that can be started: unclaimed, with all needed tasks done.

    Example: agentlip bus ready
    """
    tasks = read(session, dependencies.ready, CLOCK.now_ms())
    session.table([{"task_id": task} for task in tasks], [("TASK", "task_id")], "no task is ready")


@cursor.command("list")
def list_cursors(session: Session) -> None:
    """List what each agent has acked, and which cursors hold back pruning.

    Example: agentlip bus cursor list
    """
    rows = [
        {**msgspec.to_builtins(row), "updated_at": iso(row.updated_at_ms)}
        for row in read(session, retention.cursors, CLOCK.now_ms())
    ]
    columns = [("AGENT", "agent_id"), ("ACKED", "last_acked_seq"), ("LIVE", "live"),
               ("UPDATED", "updated_at")]  # fmt: skip
    session.table(rows, columns, empty="no agent has acked a message")


@cursor.command("retire")
def retire(
    session: Session, agent: Annotated[str, typer.Argument(metavar="NAME", help="The agent.")]
) -> None:
    """Stop waiting for an agent that is gone. The agent's cursor counts again after its next ack.

    Example: agentlip bus cursor retire ada
    """
    position = write(session, retention.retire_cursor, CLOCK.now_ms(), agent)
    session.answer(
        {"agent": agent, "last_acked_seq": position}, f"retired {agent}, which has acked {position}"
    )


@app.command("export")
def export(session: Session) -> None:
    """Append new messages to .worker-state/bus.jsonl.

    Example: agentlip bus export
    """
    with open_bus(session, create=False) as (paths, connection):
        count = jsonl.export(connection, paths)
    session.answer({"exported": count, "file": str(paths.export)}, f"exported {count} messages")


@app.command("archive")
def archive(
    session: Session,
    days: Annotated[
        float, typer.Option("--older-than", min=0, help="Only messages older than this, in days.")
    ] = 7,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Shrink the file if many pages are unused.")
    ] = False,
    delete_blobs: Annotated[
        bool, typer.Option("--blobs", help="Delete payloads that no message refers to.")
    ] = False,
) -> None:
    """Export all messages, then prune those that every live agent has acked.

    Example: agentlip bus archive --older-than 30 --vacuum
    """
    deleted = 0
    with open_bus(session, create=False) as (paths, connection):
        exported = jsonl.export(connection, paths)
        pruned = retention.prune_all(connection, CLOCK, int(days * DAY_MS))
        if delete_blobs:
            with transaction(connection):  # nobody publishes a reference meanwhile
                kept = names_elsewhere(DataDir(paths.workspace), "bus")
                deleted = retention.delete_orphans(connection, paths.blobs, CLOCK.now_ms(), kept)
        shrunk = vacuum and retention.vacuum(connection, float("inf"))
    session.answer(
        {"exported": exported, "pruned": pruned, "blobs_deleted": deleted, "vacuumed": shrunk},
        f"exported {exported} and pruned {pruned} messages, deleted {deleted} blobs",
    )


def _json(text: str | None) -> Any:
    try:
        return msgspec.json.decode(text) if text is not None else None
    except msgspec.DecodeError as error:
        raise Invalid(
            f"the payload is not JSON: {error}", hint='quote it: \'{"commit": "a1b2"}\''
        ) from None


def _answer_claim(session: Session, made: claims.BusClaim, verb: str) -> None:
    text = f"{verb} {made.task_id} until {iso(made.lease_until_ms)}, fence {made.fence}"
    session.answer(msgspec.to_builtins(made), text)


def print_messages(
    session: Session, paths: BusPaths, batch: Sequence[BusMessage], empty: str
) -> None:
    session.table([_row(session, paths, message) for message in batch], LISTED, empty)


def _row(session: Session, paths: BusPaths, stored: BusMessage) -> dict[str, Any]:
    message = messages.with_payload(paths.blobs, stored)
    row: dict[str, Any] = msgspec.to_builtins(message)
    if session.machine:
        return row
    payload = msgspec.json.encode(message.payload).decode() if message.payload is not None else ""
    row["text"] = message.payload_error or payload
    return {**row, "time": iso(message.ts_ms), "to": message.to_agent or "all"}

"""`agentlip outbox`: what waits, what died, and what to do about it."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common, note, plain_app, write_line
from appliance.kernel.errors import Invalid
from appliance.outbox.cli_send import json_object, send

app = plain_app("Sends to meshes and mail: send, inspect, requeue, drop, prune, export, recover.")
app.command("send")(send)

PATH = "/v1/outbox"
COLUMNS = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("TRIES", "attempts"),
    ("ENQUEUED", "enqueued_at"),
    ("TO", "to"),
    ("PRINCIPAL", "principal"),
    ("CLIENT MESSAGE ID", "client_message_id"),
    ("LAST ERROR", "last_error"),
]
PAGE = 500

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the row, or the client's.")]
StatusFlag = Annotated[
    str | None, typer.Option("--status", help="pending, inflight, done, dead or aborted.")
]
MeshFlag = Annotated[str | None, typer.Option("--mesh", help="Only of this mesh.")]
ToFlag = Annotated[str | None, typer.Option("--to", help="Only to this destination.")]
FailedFlag = Annotated[bool, typer.Option("--failed", help="Only dead ones.")]


@app.command("list")
@common
def list_sends(
    session: Session,
    status: StatusFlag = None,
    failed: FailedFlag = False,
    mesh: MeshFlag = None,
    to: ToFlag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
) -> None:
    """Sends, newest first, without their payloads.

    Example: agentlip outbox list --failed
    """
    query = {"status": "dead" if failed else status, "mesh": mesh, "to": to}
    session.table(_listed(_hub(session), query, limit), COLUMNS, empty="no such sends")


def _listed(hub: Any, query: dict[str, Any], limit: int) -> list[Any]:
    """Page by page: the appliance limits a page in bytes too."""
    rows: list[Any] = []
    before = None
    while True:
        page = hub.get(f"{PATH}/sends", **query, before=before, limit=limit - len(rows))
        rows += page["sends"]
        before = page["next"]
        if before is None or len(rows) >= limit:
            return rows


@app.command("status")
@common
def show_state(session: Session) -> None:
    """How much waits, how old the oldest is, how full the outbox is."""
    state = _hub(session).get(PATH)
    counts = ", ".join(f"{count} {status}" for status, count in state["depth"].items() if count)
    age = state["oldest_pending_seconds"]
    told = f"{state['level']}, {state['fill']:.0%} full: {counts or 'nothing waits'}"
    told += f"; the oldest waits for {age:.0f} s" if state["depth"]["pending"] else ""
    left = state["open_routes"]
    session.answer(state, told + (f"; left alone for a while: {', '.join(left)}" if left else ""))


@app.command("inspect")
@common
def inspect(session: Session, any_id: IdArgument) -> None:
    """One send whole, and the chain of requeues it is part of.

    Example: agentlip outbox inspect out_01K9Z7V0F5W3M2D8S6T4R1Q0P9
    """
    found = _inspected(_hub(session), any_id)
    send = found["send"]
    lines = [f"{name}: {value}" for name, value in send.items() if value is not None]
    if found["meta"]:
        lines.append(f"meta: {found['meta']}")
    lines.append(f"message: {found['message'] if found['message'] is not None else '(dropped)'}")
    if len(found["chain"]) > 1:
        lines.append("chain:")
        lines += [
            f"  {one['id']} {one['status']} {one['client_message_id']}" for one in found["chain"]
        ]
    session.answer(found, "\n".join(lines))


def _inspected(hub: Any, any_id: str) -> dict[str, Any]:
    """With the whole chain: the appliance limits a page of it in bytes too."""
    found: dict[str, Any] = hub.get(f"{PATH}/inspect", id=any_id)
    while found.get("has_more"):
        page = hub.get(f"{PATH}/inspect", id=any_id, after=found["next"])
        found["chain"] += page["chain"]
        found |= {"has_more": page["has_more"], "next": page["next"]}
    return found


@app.command("requeue")
@common
def requeue(
    session: Session,
    any_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One send; without it, a filter.")
    ] = None,
    id_flag: Annotated[str | None, typer.Option("--id", help="The same.")] = None,
    new_client_id: Annotated[
        str | None, typer.Option("--new-client-id", help="The new send's client_message_id.")
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Have the new id made.")] = False,
    patch_payload: Annotated[
        str | None,
        typer.Option("--patch-payload", help='JSON, or @FILE: {"message": …, "meta": …}'),
    ] = None,
    status: Annotated[str | None, typer.Option("--status", help="dead or pending.")] = None,
    failed: FailedFlag = False,
    mesh: MeshFlag = None,
    to: ToFlag = None,
    error_contains: Annotated[
        str | None, typer.Option("--error", help="Only with these words in the last error.")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option("--older-than", min=0, help="Only older than so many seconds.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, tell.")] = False,
) -> None:
    """Retire sends that are stuck and put new ones, with new ids, in their places.

    Example: agentlip outbox requeue --failed --error 'topic not found' --auto --dry-run
    """
    body = {
        "id": any_id or id_flag,
        "new_client_id": new_client_id,
        "auto": auto,
        "patch": None if patch_payload is None else json_object(patch_payload, "--patch-payload"),
        "status": "dead" if failed else status,
        "mesh": mesh,
        "to": to,
        "error_contains": error_contains,
        "older_than_seconds": older_than,
        "limit": limit,
        "dry_run": dry_run,
    }
    answer = _hub(session).post(f"{PATH}/requeue", _given(body), "")
    rows = answer["requeued"]
    if session.machine:
        session.answer(answer, "")
        return
    columns = [
        ("RETIRED", "id"),
        ("NEW", "new_id"),
        ("NEW CLIENT MESSAGE ID", "new_client_message_id"),
    ]
    session.table(rows, columns, empty="nothing to requeue")
    if answer["more"]:
        note(f"there may be more than these {len(rows)}; do it again, or raise --limit")
    if rows and dry_run:
        note("nothing was changed; leave out --dry-run to do it")


@app.command("drop")
@common
def drop(session: Session, any_id: IdArgument) -> None:
    """Retire one send and drop its payload. Its id stays used, for ever."""
    answer = _hub(session).post(f"{PATH}/drop", {"id": any_id}, "")
    session.answer(answer, f"dropped {answer['send']['id']}")


@app.command("prune")
@common
def prune(
    session: Session,
    confirm: Annotated[bool, typer.Option("--confirm", help="Yes, for good.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Dead ones too; that retires them.")] = False,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="Only ended so many seconds ago.")
    ] = 0.0,
) -> None:
    """Drop payloads of sends that have ended, to make room. Ids stay used."""
    if not confirm:
        raise Invalid("pruning drops payloads for good", hint="agentlip outbox prune --confirm")
    hub, pruned, more = _hub(session), 0, True
    while more:
        body = {"confirm": True, "dead": dead, "older_than_seconds": older_than}
        answer = hub.post(f"{PATH}/prune", body, "")
        pruned, more = pruned + answer["pruned"], answer["more"]
    session.answer({"pruned": pruned}, f"dropped the payloads of {pruned} sends")


@app.command("export")
@common
def export(session: Session, status: StatusFlag = None) -> None:
    """All sends with their payloads, oldest first, one JSON object a line.

    Example: agentlip outbox export --status dead > dead.jsonl
    """
    import msgspec

    for one in _pages(session, status):
        write_line(msgspec.json.encode(one).decode())


@app.command("reload")
@common
def reload(session: Session) -> None:
    """Read the settings of [outbox] again, without a restart and without losing a connection.

    Example: agentlip outbox reload
    """
    answer = _hub(session).post(f"{PATH}/reload", {}, "")
    lines = [f"changed: {', '.join(answer['changed']) or 'nothing'}"]
    if answer["needs_restart"]:
        lines.append(f"needs a restart (agentlipd restart): {', '.join(answer['needs_restart'])}")
    session.answer(answer, "\n".join(lines))


@app.command("recover")
@common
def recover(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say so.")] = False,
) -> None:
    """Copy what can be read of a damaged outbox into a new file. The damaged file is kept.

    Stop the appliance first. A send that can't be read becomes an aborted one, so that its id is
    never accepted again. Exit code 1 when anything was lost.

    Example: agentlip outbox recover --yes
    """
    if not yes:
        raise Invalid(
            "sends that can't be read in a damaged outbox are lost; a copy of the workspace may"
            " hold more",
            hint="agentlip outbox recover --yes",
        )
    import os

    import msgspec

    from appliance.cli_recover import stopped_workspace
    from appliance.kernel import config
    from appliance.outbox.recover import recover as recover_outbox
    from appliance.outbox.settings import OutboxSettings

    class Section(msgspec.Struct, frozen=True):
        outbox: OutboxSettings = OutboxSettings()

    with stopped_workspace(session) as (datadir, clock, log):
        settings = config.load(Section, datadir.settings_file, os.environ).outbox
        done = recover_outbox(datadir, settings, clock, log)
    if done.kept_as is None:
        text = "the outbox is sound; nothing was changed"
    else:
        text = f"saved {done.sends} sends; the damaged file is kept as {done.kept_as}"
    for count, what in (
        (done.ids_lost, "sends are lost; their ids stay taken, as aborted sends"),
        (done.ids_unknown, "sends are lost with their ids, which clients may use again"),
        (done.rows_lost, "remembered answers to requests are lost"),
    ):
        text += f"\n{count} {what}" if count else ""
    session.answer(msgspec.to_builtins(done), text)
    if not done.is_complete:
        raise typer.Exit(1)


def _pages(session: Session, status: str | None) -> Iterator[dict[str, Any]]:
    hub, after = _hub(session), None
    while True:
        page = hub.get(f"{PATH}/export", status=status, after=after, limit=PAGE)
        yield from page["sends"]
        after = page["next"]
        if after is None:
            return


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _hub(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace))

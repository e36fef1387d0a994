"""`agentlip outbox`: inspect and manage sends."""

from typing import Annotated, Any

import typer

from appliance.cli_support import PauseSecondsFlag, Session, plain_app
from appliance.kernel.errors import Invalid
from appliance.outbox.cli_send import json_object, send

app = plain_app(
    "Messages to meshes and mail: send, inspect, redrive, drop, prune.",
    "Other appliances/outbox",
)
app.command("send")(send)

PATH = "/v1/outbox"
REDRIVE_MAX = 1000  # sends that one request redrives; as many requests redrive a full outbox
COLUMNS = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("ATTEMPTS", "attempts"),
    ("ENQUEUED", "enqueued_at"),
    ("TO", "to"),
    ("ROUTE", "route"),
    ("PRINCIPAL", "principal"),
    ("CLIENT MESSAGE ID", "client_message_id"),
    ("LAST ERROR", "last_error"),
]

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Row id or client_message_id.")]
RouteArgument = Annotated[
    str,
    typer.Argument(metavar="ROUTE", help="A send's route, or a target: `broker`, `mail`."),
]
StatusFlag = Annotated[
    str | None,
    typer.Option("--status", help="Only `pending`, `inflight`, `done`, `dead` or `aborted` ones."),
]
MeshFlag = Annotated[str | None, typer.Option("--mesh", help="Only sends to this mesh.")]
ToFlag = Annotated[str | None, typer.Option("--to", help="Only sends to this destination.")]
FailedFlag = Annotated[bool, typer.Option("--failed", help="Only dead letters.")]


@app.command("list")
def list_sends(
    session: Session,
    status: StatusFlag = None,
    failed: FailedFlag = False,
    mesh: MeshFlag = None,
    to: ToFlag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum sends.")] = 50,
) -> None:
    """List sends without their payloads, newest first.

    Example: agentlip outbox list --failed
    """
    query = {"status": "dead" if failed else status, "mesh": mesh, "to": to}
    rows, _ = session.hub().page(f"{PATH}/sends", "sends", limit, cursor="before", **query)
    session.table(rows, COLUMNS, empty="no matching sends")


@app.command("status")
def show_state(session: Session) -> None:
    """Show queue depth, the oldest send's age and the fill level."""
    state = session.hub().get(PATH)
    counts = ", ".join(f"{count} {status}" for status, count in state["depth"].items() if count)
    age = state["oldest_pending_seconds"]
    text = f"{state['level']}, {state['fill']:.0%} full: {counts or 'no open sends'}"
    text += f"; the oldest is {age:.0f} s old" if state["depth"]["pending"] else ""
    if state["lost"]:
        text += f"; {state['lost']} were accepted and are gone since their broker was restored"
        text += ": agentlip outbox redrive --lost"
    if state["open_routes"]:
        text += f"; circuit breaker open: {', '.join(state['open_routes'])}"
    session.answer(state, text + (f"; {_paused_text(state['paused'])}" if state["paused"] else ""))


@app.command("inspect")
def inspect(session: Session, any_id: IdArgument) -> None:
    """Show one send with payload and redrive chain.

    Example: agentlip outbox inspect out_01K9Z7V0F5W3M2D8S6T4R1Q0P9
    """
    details = session.hub().get(f"{PATH}/inspect", id=any_id)
    send = details["send"]
    lines = [f"{name}: {value}" for name, value in send.items() if value is not None]
    if details["meta"]:
        lines.append(f"meta: {details['meta']}")
    lines.append(
        f"message: {details['message'] if details['message'] is not None else '(dropped)'}"
    )
    if len(details["chain"]) > 1:
        lines.append("chain:")
        lines += [
            f"  {row['id']} {row['status']} {row['client_message_id']}" for row in details["chain"]
        ]
    session.answer(details, "\n".join(lines))


@app.command("redrive")
def redrive(
    session: Session,
    any_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Row id or client_message_id; without it, give a filter."
        ),
    ] = None,
    id_flag: Annotated[str | None, typer.Option("--id", help="Same as the argument ID.")] = None,
    new_client_id: Annotated[
        str | None, typer.Option("--new-client-id", help="client_message_id for the new send.")
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Generate an id for each new send.")] = False,
    patch_payload: Annotated[
        str | None,
        typer.Option(
            "--patch-payload", help='New content as JSON or @FILE: {"message": …, "meta": …}'
        ),
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Only this status: `dead` or `pending`.")
    ] = None,
    failed: FailedFlag = False,
    mesh: MeshFlag = None,
    to: ToFlag = None,
    error_contains: Annotated[
        str | None, typer.Option("--error", help="Only sends whose last error contains this text.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", min=0, help="Only sends older than this many seconds."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum sends: 100, with --lost all."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the planned changes.")
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="Send again, with the same ids, the sends that a broker restore lost."
        ),
    ] = False,
) -> None:
    """Retire stuck sends and replace them with new ones that have new ids.

    Example: agentlip outbox redrive --failed --error 'topic not found' --auto --dry-run
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
        "limit": limit or (REDRIVE_MAX if lost else 100),
        "dry_run": dry_run,
        "lost": lost,
    }
    rounds = REDRIVE_MAX if lost and limit is None and not dry_run else 0
    _show_redriven(session, _redrive(session, body, rounds))


app.command("requeue", hidden=True)(redrive)  # its name in the outbox specification


def _redrive(session: Session, body: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Redrive, and up to `rounds` times more while sends are left; the last answer with all."""
    answer, rows = session.hub().post(f"{PATH}/redrive", body, ""), []
    for _ in range(rounds):
        if not answer["more"]:
            break
        rows += answer["requeued"]
        answer = session.hub().post(f"{PATH}/redrive", body, "")
    return {**answer, "requeued": [*rows, *answer["requeued"]]}


def _show_redriven(session: Session, answer: dict[str, Any]) -> None:
    rows = answer["requeued"]
    columns = [
        ("RETIRED", "id"),
        ("NEW", "new_id"),
        ("NEW CLIENT MESSAGE ID", "new_client_message_id"),
    ]
    session.table(rows, columns, empty="nothing to redrive", answer=answer)
    if answer["more"]:
        session.note(f"limit {len(rows)} reached; repeat the command or raise --limit")
    if rows and answer["dry_run"]:
        session.note("nothing was changed; omit --dry-run to redrive")


@app.command("drop")
def drop(session: Session, any_id: IdArgument) -> None:
    """Retire one send and drop its payload. The id can never be used again."""
    answer = session.hub().post(f"{PATH}/drop", {"id": any_id}, "")
    session.answer(answer, f"dropped {answer['send']['id']}")


@app.command("prune")
def prune(
    session: Session,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Required: payloads are dropped permanently.")
    ] = False,
    dead: Annotated[
        bool, typer.Option("--dead", help="Also retire dead letters and drop their payloads.")
    ] = False,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than", min=0, help="Only sends that ended at least this many seconds ago."
        ),
    ] = 0.0,
) -> None:
    """Prune payloads of ended sends to free space. Their ids stay used."""
    if not confirm:
        raise Invalid("prune drops payloads permanently", hint="--confirm")
    hub, pruned, more = session.hub(), 0, True
    while more:
        body = {"confirm": True, "dead": dead, "older_than_seconds": older_than}
        answer = hub.post(f"{PATH}/prune", body, "")
        pruned, more = pruned + answer["pruned"], answer["more"]
    session.answer({"pruned": pruned}, f"dropped the payloads from {pruned} sends")


@app.command("pause")
def pause(
    session: Session,
    route: RouteArgument,
    seconds: PauseSecondsFlag = None,
) -> None:
    """Stop deliveries on a route. New sends are accepted, and wait.

    Examples: agentlip outbox pause mail --for 3600; agentlip outbox pause mail://example.com
    """
    answer = session.hub().post(f"{PATH}/pause", {"route": route, "seconds": seconds})
    session.answer(answer, _paused_text(answer["paused"]))


@app.command("resume")
def resume(session: Session, route: RouteArgument) -> None:
    """Deliver the waiting sends on a paused route."""
    answer = session.hub().post(f"{PATH}/resume", {"route": route})
    session.answer(answer, _paused_text(answer["paused"]))


def _paused_text(paused: list[dict[str, Any]]) -> str:
    routes = [
        f"{each['route']}{' until ' + each['until'] if each['until'] else ''}" for each in paused
    ]
    return f"paused: {', '.join(routes) or 'nothing'}"


@app.command("reload")
def reload(session: Session) -> None:
    """Reload the [outbox] settings without a restart.

    Example: agentlip outbox reload
    """
    answer = session.hub().post(f"{PATH}/reload", {}, "")
    lines = [f"changed: {', '.join(answer['changed']) or 'nothing'}"]
    if answer["needs_restart"]:
        lines.append(f"needs a restart (agentlipd restart): {', '.join(answer['needs_restart'])}")
    session.answer(answer, "\n".join(lines))

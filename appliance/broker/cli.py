"""`agentlip mesh` and `agentlip broker`: through the appliance that runs here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.config import secret as text_of
from appliance.kernel.errors import Conflict, Invalid

meshes = plain_app("Meshes of the broker: members, topics, queues, subscriptions.")
app = plain_app("The broker: status, history, orphans.")

ROOT = "/broker/v1/meshes"

MeshArgument = Annotated[str, typer.Argument(metavar="MESH", help="Name of the mesh.")]
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help="Its key, or its name.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
HookArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the webhook.")]
SecretFlag = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Sign with the secret in this file (whsec_…)."),
]
QueueFlag = Annotated[bool, typer.Option("--queue", help="A queue: one consumer gets each.")]
DedupeFlag = Annotated[
    int | None, typer.Option("--dedupe-days", help="How long ids are remembered (7 to 3999).")
]
KeepFlag = Annotated[int | None, typer.Option("--keep-days", help="How long messages are kept.")]
PermanentFlag = Annotated[
    bool | None, typer.Option("--permanent/--scoped", help="Remember ids for ever, or not.")
]
PolicyFlag = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        help="Two connections of a member: prefer_newest, prefer_oldest, allow_concurrent.",
    ),
]


@meshes.command("create")
@common
def create_mesh(
    session: Session,
    slug: NameArgument,
    dedupe_days: DedupeFlag = None,
    keep_days: KeepFlag = None,
    permanent: PermanentFlag = None,
    concurrency: PolicyFlag = None,
) -> None:
    """Make a mesh.

    Example: agentlip mesh create lab --keep-days 30
    """
    body = {"slug": slug, **_retention(dedupe_days, keep_days, permanent, concurrency)}
    answer = _hub(session).post(ROOT, body)
    session.answer(answer, f"made mesh {slug}")


@meshes.command("list")
@common
def list_meshes(session: Session) -> None:
    """All meshes."""
    session.table(
        _hub(session).get(ROOT)["meshes"],
        [
            ("MESH", "slug"),
            ("IDS", "dedupe_mode"),
            ("DAYS", "dedupe_retention_days"),
            ("KEEP", "message_retention_days"),
            ("CONCURRENCY", "concurrency"),
        ],
        empty="no meshes yet; make one with 'agentlip mesh create NAME'",
    )


@meshes.command("update")
@common
def update_mesh(
    session: Session,
    mesh: MeshArgument,
    dedupe_days: DedupeFlag = None,
    keep_days: KeepFlag = None,
    permanent: PermanentFlag = None,
    concurrency: PolicyFlag = None,
) -> None:
    """Change what is named. Ids that were given an end keep it.

    Example: agentlip mesh update lab --concurrency allow_concurrent
    """
    body = _retention(dedupe_days, keep_days, permanent, concurrency)
    if not body:
        raise Invalid("nothing to change", hint="agentlip mesh update --help")
    session.answer(_hub(session).patch(_path(mesh), body), f"changed {mesh}")


@meshes.command("keygen")
@common
def make_key(
    session: Session,
    out: Annotated[Path, typer.Option("--out", help="File for the private seed; must not exist.")],
) -> None:
    """Make a member's key pair: the seed into a file, the public key on standard output.

    Example: agentlip mesh keygen --out anna.key
    """
    import os

    from appliance.kernel.ids import secret_token
    from appliance.mesh.signing import public_key

    seed = secret_token()
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(f"{out} exists", hint="a key is never written over") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(seed + "\n")
    key = public_key(seed)
    session.answer({"pubkey": key, "seed_file": str(out)}, key)


@meshes.command("add-member")
@common
def add_member(
    session: Session,
    mesh: MeshArgument,
    name: NameArgument,
    key: Annotated[str, typer.Option("--key", help="Its ed25519 public key, hexadecimal.")],
) -> None:
    """Add a member by its public key.

    Example: agentlip mesh add-member lab anna --key $(agentlip mesh keygen --out anna.key)
    """
    answer = _hub(session).post(f"{_path(mesh)}/members", {"pubkey": key, "name": name})
    session.answer(answer, f"added {name} to {mesh}")


@meshes.command("members")
@common
def list_members(session: Session, mesh: MeshArgument) -> None:
    """Members of a mesh, and who is connected."""
    session.table(
        _hub(session).rows(_path(mesh, "members"), "members"),
        [("NAME", "name"), ("STATE", "state"), ("CONNECTED", "connected"), ("KEY", "pubkey")],
        empty="no members yet; add one with 'agentlip mesh add-member'",
    )


@meshes.command("rename-member")
@common
def rename_member(
    session: Session, mesh: MeshArgument, member: MemberArgument, name: NameArgument
) -> None:
    """Give a member another name. Messages keep the name that their sender had."""
    answer = _hub(session).patch(f"{_path(mesh, 'members', member)}", {"name": name})
    session.answer(answer, f"{member} is {name} now")


@meshes.command("revoke-member")
@common
def revoke_member(session: Session, mesh: MeshArgument, member: MemberArgument) -> None:
    """End a member: at once and for good. Its connections are closed, its key never comes back."""
    session.answer(_hub(session).delete(_path(mesh, "members", member)), f"revoked {member}")


@meshes.command("add-topic")
@common
def add_topic(
    session: Session, mesh: MeshArgument, name: NameArgument, queue: QueueFlag = False
) -> None:
    """Make a topic, or with --queue a queue.

    Example: agentlip mesh add-topic lab alerts
    """
    answer = _hub(session).post(_path(mesh, _kinds(queue)), {"name": name})
    session.answer(answer, f"{_kinds(queue)[:-1]} {name}")


@meshes.command("topics")
@common
def list_topics(session: Session, mesh: MeshArgument, queue: QueueFlag = False) -> None:
    """Topics of a mesh, or with --queue its queues, and who is subscribed."""
    rows = _hub(session).rows(_path(mesh, _kinds(queue)), "places")
    if not session.machine:
        rows = [
            {**row, "subscribers": " ".join(one[:16] for one in row["subscribers"])} for row in rows
        ]
    session.table(
        rows,
        [("NAME", "name"), ("SUBSCRIBERS", "subscribers")],
        empty="none yet; make one with 'agentlip mesh add-topic'",
    )


@meshes.command("subscribe")
@common
def subscribe(
    session: Session,
    mesh: MeshArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="Key, name, or webhook:ID.")],
    queue: QueueFlag = False,
) -> None:
    """Have a member get what is sent to a topic, or its share of a queue.

    Example: agentlip mesh subscribe lab alerts anna
    """
    path = _path(mesh, _kinds(queue), topic, "subscribers", member)
    session.answer(_hub(session).put(path), f"{member} is subscribed to {topic}")


@meshes.command("unsubscribe")
@common
def unsubscribe(
    session: Session,
    mesh: MeshArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    member: MemberArgument,
    queue: QueueFlag = False,
) -> None:
    """End a subscription. What is on its way already still arrives."""
    path = _path(mesh, _kinds(queue), topic, "subscribers", member)
    session.answer(_hub(session).delete(path), f"{member} is not subscribed to {topic}")


@meshes.command("webhooks")
@common
def list_hooks(session: Session, mesh: MeshArgument) -> None:
    """Webhooks that can be subscribed to topics."""
    rows = _hub(session).rows(_path(mesh, "webhooks"), "webhooks")
    if not session.machine:
        rows = [{**row, "state": _hook_state(row)} for row in rows]
    session.table(
        rows,
        [("ID", "id"), ("STATE", "state"), ("URL", "url")],
        empty="no webhooks",
    )


@meshes.command("add-webhook")
@common
def add_hook(
    session: Session,
    mesh: MeshArgument,
    url: Annotated[str, typer.Argument(metavar="URL")],
    secret_file: SecretFlag = None,
) -> None:
    """Add a webhook; subscribe it as webhook:ID. Its secret is shown this once.

    Example: agentlip mesh add-webhook lab https://ci.example.com/hook
    """
    body = {"url": url, **_secret(secret_file)}
    answer = _hub(session).post(_path(mesh, "webhooks"), body)
    session.answer(answer, f"webhook:{answer['webhook']['id']}\n{answer['secret']}")


@meshes.command("update-webhook")
@common
def update_hook(
    session: Session,
    mesh: MeshArgument,
    webhook: HookArgument,
    url: Annotated[str | None, typer.Option("--url", help="Where it points from now on.")] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Call it, or not.")
    ] = None,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Have one made; the former signs too for a day.")
    ] = False,
    secret_file: SecretFlag = None,
) -> None:
    """Change a webhook, its switch or its secret.

    Example: agentlip mesh update-webhook lab bhook_01K… --enable
    """
    given = {"url": url, "enabled": enabled, "new_secret": new_secret or None}
    body = {name: value for name, value in given.items() if value is not None}
    body |= _secret(secret_file)
    if not body:
        raise Invalid("nothing to change", hint="agentlip mesh update-webhook --help")
    answer = _hub(session).patch(_hook_path(mesh, webhook), body)
    lines = [f"{webhook} is {_hook_state(answer['webhook'])}"]
    if "secret" in answer:
        lines.append(answer["secret"])
    session.answer(answer, "\n".join(lines))


@meshes.command("webhook-deliveries")
@common
def list_hook_deliveries(
    session: Session,
    mesh: MeshArgument,
    webhook: HookArgument,
    limit: Annotated[int, typer.Option("--limit", min=1)] = 100,
) -> None:
    """What a webhook has not taken yet, and why.

    Example: agentlip mesh webhook-deliveries lab bhook_01K…
    """
    path = f"{_hook_path(mesh, webhook)}/deliveries"
    rows, more = _hub(session).page(path, "deliveries", limit)
    session.table(
        rows,
        [
            ("MESSAGE", "message_id"),
            ("STATE", "state"),
            ("TRIES", "attempts"),
            ("NEXT", "next_attempt_at"),
            ("LAST ERROR", "last_error"),
        ],
        empty="nothing waits for it",
    )
    if more and not session.machine:
        note(f"only {limit} are shown")


@meshes.command("remove-webhook")
@common
def remove_hook(session: Session, mesh: MeshArgument, webhook: HookArgument) -> None:
    """Forget a webhook, its subscriptions, and what waits for it."""
    session.answer(_hub(session).delete(_hook_path(mesh, webhook)), f"removed {webhook}")


def _hook_path(mesh: str, webhook: str) -> str:
    return _path(mesh, "webhooks", webhook.removeprefix("webhook:"))


def _hook_state(row: Mapping[str, Any]) -> str:
    if not row["enabled"]:
        return "off"
    return "on" if row["failing_since"] is None else "failing"


def _secret(file: Path | None) -> dict[str, str]:
    return {} if file is None else {"secret": text_of(str(file))}


@app.command("status")
@common
def show_status(session: Session) -> None:
    """Counts of everything, and what the last looks found."""
    answer = _hub(session).get("/broker/v1/status")
    told = ", ".join(f"{value} {name}" for name, value in answer.items() if isinstance(value, int))
    session.answer(answer, told)


@app.command("history")
@common
def show_history(
    session: Session,
    mesh: MeshArgument,
    after: Annotated[str, typer.Option("--after", help="Behind this history_id.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1)] = 100,
) -> None:
    """Messages of a mesh in the order of acceptance.

    Example: agentlip broker history lab --limit 10
    """
    page = _hub(session).get(_path(mesh, "history"), after=after or None, limit=limit)
    rows = page["history"]
    if not session.machine:
        rows = [{"history_id": row["history_id"], **row["message"]} for row in rows]
    session.table(
        rows,
        [
            ("HISTORY", "history_id"),
            ("FROM", "sender_name"),
            ("KIND", "destination_kind"),
            ("TO", "destination_ref"),
            ("BODY", "body"),
        ],
        empty="nothing was accepted yet",
    )


@app.command("orphans")
@common
def find_orphans(session: Session) -> None:
    """Look for rows that break the broker's promise. Exit code 1 when there are any."""
    rows = _hub(session).post("/broker/v1/orphans", {})["orphans"]
    columns = [("RULE", "rule"), ("MESH", "mesh"), ("MESSAGE", "broker_message_id"),
               ("WHAT", "sentence")]  # fmt: skip
    if not rows and not session.machine:
        session.answer(rows, "no orphans: all accepted messages are complete")
        return
    session.table(rows, columns, empty="")
    if rows:
        raise typer.Exit(1)


@app.command("recover")
@common
def recover(
    session: Session,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm; without it, nothing is changed.")
    ] = False,
) -> None:
    """Copy what can be read of a damaged broker into a new file. The damaged file is kept.

    Stop the appliance first. Exit code 1 when anything was lost; `agentlip broker orphans` then
    lists what no longer belongs together.

    Example: agentlip broker recover --yes
    """
    from appliance.cli_recover import recover_store

    recover_store(session, "broker", yes)


@app.command("accept")
@common
def accept_one(
    session: Session,
    mesh: MeshArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    sender: Annotated[str, typer.Option("--as", help="Member that sends: key or name.")],
    topic: Annotated[str | None, typer.Option("--topic")] = None,
    queue: Annotated[str | None, typer.Option("--queue")] = None,
    to: Annotated[str | None, typer.Option("--to", help="A member: key or name.")] = None,
    client_message_id: Annotated[
        str | None, typer.Option("--id", help="The same id again sends nothing twice.")
    ] = None,
) -> None:
    """Hand one message to the broker without the outbox, to try a mesh out.

    To send for real use agentlip outbox send: it keeps the message until the broker has it.

    Example: agentlip broker accept lab --as anna --topic alerts 'build done'
    """
    from appliance.kernel.ids import random_id
    from appliance.mesh.fingerprint import fingerprint

    hub = _hub(session)
    keys = {one["name"]: one["pubkey"] for one in hub.rows(_path(mesh, "members"), "members")}
    chosen = {"topic": topic, "queue": queue, "dm": None if to is None else keys.get(to, to)}
    given = [(kind, ref) for kind, ref in chosen.items() if ref is not None]
    if len(given) != 1:
        raise Invalid("name one of --topic, --queue and --to")
    kind, ref = given[0]
    item: dict[str, Any] = {
        "mesh": mesh,
        "client_message_id": client_message_id or random_id(),
        "request_fingerprint": fingerprint(kind, ref, text.encode()).hex(),  # type: ignore[arg-type]
        "destination_kind": kind,
        "destination_ref": ref,
        "body": text,
    }
    answer = hub.post(
        "/broker/v1/accept", item, headers={"X-Agentlip-Member": keys.get(sender, sender)}
    )
    session.answer(answer, str(answer["broker_message_id"]))
    if answer["duplicate"] and not session.machine:
        note("it was accepted before; nothing was sent again")


def _retention(
    dedupe_days: int | None, keep_days: int | None, permanent: bool | None, policy: str | None
) -> dict[str, Any]:
    modes = {None: None, True: "permanent", False: "retention_scoped"}
    fields = {
        "dedupe_mode": modes[permanent],
        "dedupe_retention_days": dedupe_days,
        "message_retention_days": keep_days,
        "concurrency": policy,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _kinds(queue: bool) -> str:
    return "queues" if queue else "topics"


def _path(mesh: str, *parts: str) -> str:
    from urllib.parse import quote

    if not mesh or not all(parts):
        raise Invalid("a name must not be empty")
    return "/".join([ROOT, *(quote(part, safe=":") for part in (mesh, *parts))])


def _hub(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace))

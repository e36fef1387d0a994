"""`agentlip mesh` and `agentlip broker`, which call the running appliance."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Columns, Session, plain_app, read_secret
from appliance.kernel.errors import Conflict, Invalid

meshes = plain_app(
    "Manage the broker's meshes: members, topics, queues, subscriptions, webhooks.",
    "Other appliances/mesh",
)
app = plain_app("Inspect the broker: status, history.", "Other appliances/broker")

ROOT = "/broker/v1/meshes"

MeshArgument = Annotated[str, typer.Argument(metavar="MESH", help="Mesh name.")]
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help="The member's key or name.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic or queue name.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The new name.")]
WebhookArgument = Annotated[str, typer.Argument(metavar="ID", help="Webhook id.")]
SecretFlag = Annotated[
    Path | None, typer.Option("--secret-file", help="File with the secret to sign with (whsec_…).")
]
QueueFlag = Annotated[
    bool, typer.Option("--queue", help="A queue: each message goes to one consumer.")
]
DedupeFlag = Annotated[
    int | None, typer.Option("--dedupe-days", help="Days that send ids are kept (7 to 3999).")
]
KeepFlag = Annotated[int | None, typer.Option("--keep-days", help="Days that messages are kept.")]
PermanentFlag = Annotated[
    bool | None, typer.Option("--permanent/--scoped", help="Whether to keep send ids forever.")
]
PolicyFlag = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        help="If a member connects twice: prefer_newest, prefer_oldest or allow_concurrent.",
    ),
]


@meshes.command("create")
def create_mesh(
    session: Session,
    slug: NameArgument,
    dedupe_days: DedupeFlag = None,
    keep_days: KeepFlag = None,
    permanent: PermanentFlag = None,
    concurrency: PolicyFlag = None,
) -> None:
    """Create a mesh.

    Example: agentlip mesh create lab --keep-days 30
    """
    body = {"slug": slug, **_retention(dedupe_days, keep_days, permanent, concurrency)}
    answer = session.hub().post(ROOT, body)
    session.answer(answer, f"created mesh {slug}")


@meshes.command("list")
def list_meshes(session: Session) -> None:
    """List all meshes."""
    session.table(
        session.hub().get(ROOT)["meshes"],
        [
            ("MESH", "slug"),
            ("IDS", "dedupe_mode"),
            ("DAYS", "dedupe_retention_days"),
            ("KEEP", "message_retention_days"),
            ("CONCURRENCY", "concurrency"),
        ],
        empty="no meshes yet; create one with 'agentlip mesh create NAME'",
    )


@meshes.command("update")
def update_mesh(
    session: Session,
    mesh: MeshArgument,
    dedupe_days: DedupeFlag = None,
    keep_days: KeepFlag = None,
    permanent: PermanentFlag = None,
    concurrency: PolicyFlag = None,
) -> None:
    """Change a mesh's named settings. A new --dedupe-days applies to sends from now on.

    Example: agentlip mesh update lab --concurrency allow_concurrent
    """
    body = _retention(dedupe_days, keep_days, permanent, concurrency)
    if all(value is None for value in body.values()):
        raise Invalid("nothing to change", hint="agentlip mesh update --help lists the options")
    session.answer(session.hub().patch(_path(mesh), body), f"changed {mesh}")


@meshes.command("keygen")
def make_key(
    session: Session,
    out: Annotated[
        Path, typer.Option("--out", help="New file for the private seed; it must not exist.")
    ],
) -> None:
    """Generate a member's key pair: write the seed to a file and print the public key.

    Example: agentlip mesh keygen --out anna.key
    """
    from appliance.kernel.ids import secret_token
    from appliance.mesh.signing import public_key

    seed = secret_token()
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Conflict(
            f"{out} exists", hint="choose another file; existing keys are not overwritten"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(seed + "\n")
    key = public_key(seed)
    session.answer({"pubkey": key, "seed_file": str(out)}, key)


@meshes.command("add-member")
def add_member(
    session: Session,
    mesh: MeshArgument,
    name: NameArgument,
    key: Annotated[str, typer.Option("--key", help="ed25519 public key in hexadecimal.")],
) -> None:
    """Add a member by its public key.

    Example: agentlip mesh add-member lab anna --key $(agentlip mesh keygen --out anna.key)
    """
    answer = session.hub().post(f"{_path(mesh)}/members", {"pubkey": key, "name": name})
    session.answer(answer, f"added {name} to {mesh}")


@meshes.command("members")
def list_members(session: Session, mesh: MeshArgument) -> None:
    """List a mesh's members and whether they are connected."""
    session.table(
        session.hub().rows(_path(mesh, "members"), "members"),
        [
            ("NAME", "name"),
            ("STATE", "state"),
            ("CONNECTED", "connected"),
            ("KEY", "pubkey"),
            ("RUNNING ON", "running_on"),
            ("REFUSED COPY", "refused"),
        ],
        empty="no members yet; add one with 'agentlip mesh add-member'",
    )


@meshes.command("rename-member")
def rename_member(
    session: Session, mesh: MeshArgument, member: MemberArgument, name: NameArgument
) -> None:
    """Rename a member. Messages that were accepted before keep the old name."""
    answer = session.hub().patch(f"{_path(mesh, 'members', member)}", {"name": name})
    session.answer(answer, f"renamed {member} to {name}")


@meshes.command("revoke-member")
def revoke_member(session: Session, mesh: MeshArgument, member: MemberArgument) -> None:
    """Revoke a member immediately and permanently, and close the member's connections.

    Also works while the appliance is stopped, for example before the start after a restore.
    """
    from appliance.sdk.discovery import HubNotRunning
    from appliance.workspace.datadir import find_workspace

    path = _path(mesh, "members", member)
    try:
        answer = session.hub().delete(path)
    except HubNotRunning:
        if session.workspace is None and os.environ.get("AGENTLIP_URL"):
            raise
        from appliance.broker.stopped import revoke_member as revoke

        answer = revoke(find_workspace(session.workspace), mesh, member)
    session.answer(answer, f"revoked {member}")


@meshes.command("add-topic")
def add_topic(
    session: Session, mesh: MeshArgument, name: NameArgument, queue: QueueFlag = False
) -> None:
    """Create a topic, or a queue with --queue.

    Example: agentlip mesh add-topic lab alerts
    """
    answer = session.hub().post(_path(mesh, _kinds(queue)), {"name": name})
    session.answer(answer, f"{_kinds(queue)[:-1]} {name}")


@meshes.command("topics")
def list_topics(session: Session, mesh: MeshArgument, queue: QueueFlag = False) -> None:
    """List a mesh's topics, or its queues with --queue, and their subscribers."""
    columns: Columns = [
        ("NAME", "name"),
        ("SUBSCRIBERS", lambda row: " ".join(key[:16] for key in row["subscribers"])),
    ]
    rows = session.hub().rows(_path(mesh, _kinds(queue)), "places")
    session.table(rows, columns, empty="none yet; create one with 'agentlip mesh add-topic'")


@meshes.command("subscribe")
def subscribe(
    session: Session,
    mesh: MeshArgument,
    topic: TopicArgument,
    member: Annotated[
        str, typer.Argument(metavar="MEMBER", help="A member's key or name, or webhook:ID.")
    ],
    queue: QueueFlag = False,
) -> None:
    """Subscribe a member to a topic, or make it consume a queue with --queue.

    Example: agentlip mesh subscribe lab alerts anna
    """
    path = _path(mesh, _kinds(queue), topic, "subscribers", member)
    session.answer(session.hub().put(path), f"{member} is subscribed to {topic}")


@meshes.command("unsubscribe")
def unsubscribe(
    session: Session,
    mesh: MeshArgument,
    topic: TopicArgument,
    member: MemberArgument,
    queue: QueueFlag = False,
) -> None:
    """End a subscription. Messages that were accepted before are still delivered."""
    path = _path(mesh, _kinds(queue), topic, "subscribers", member)
    session.answer(session.hub().delete(path), f"{member} is not subscribed to {topic}")


@meshes.command("webhooks")
def list_webhooks(session: Session, mesh: MeshArgument) -> None:
    """List a mesh's webhooks, which can be subscribed to topics."""
    rows = session.hub().rows(_path(mesh, "webhooks"), "webhooks")
    columns: Columns = [("ID", "id"), ("STATE", _webhook_state), ("URL", "url")]
    session.table(rows, columns, empty="no webhooks")


@meshes.command("add-webhook")
def add_webhook(
    session: Session,
    mesh: MeshArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL to call.")],
    secret_file: SecretFlag = None,
) -> None:
    """Add a webhook and print its secret, which is shown only once. Subscribe it as webhook:ID.

    Example: agentlip mesh add-webhook lab https://ci.example.com/hook
    """
    body = {"url": url, "secret": secret_file and read_secret(secret_file)}
    answer = session.hub().post(_path(mesh, "webhooks"), body)
    session.answer(answer, f"webhook:{answer['webhook']['id']}\n{answer['secret']}")


@meshes.command("update-webhook")
def update_webhook(
    session: Session,
    mesh: MeshArgument,
    webhook: WebhookArgument,
    url: Annotated[str | None, typer.Option("--url", help="New URL to call.")] = None,
    enabled: Annotated[
        bool | None,
        typer.Option(
            "--enable/--disable", help="Whether to call the webhook; else its messages wait."
        ),
    ] = None,
    new_secret: Annotated[
        bool,
        typer.Option(
            "--new-secret", help="Generate a new secret; for a day the old one signs too."
        ),
    ] = False,
    secret_file: SecretFlag = None,
) -> None:
    """Change a webhook's URL or secret, or enable or disable it.

    Example: agentlip mesh update-webhook lab bhook_01K… --enable
    """
    secret = secret_file and read_secret(secret_file)
    body = {"url": url, "enabled": enabled, "new_secret": new_secret or None, "secret": secret}
    if all(value is None for value in body.values()):
        raise Invalid(
            "nothing to change", hint="agentlip mesh update-webhook --help lists the options"
        )
    answer = session.hub().patch(_webhook_path(mesh, webhook), body)
    lines = [f"{webhook} is {_webhook_state(answer['webhook'])}"]
    if "secret" in answer:
        lines.append(answer["secret"])
    session.answer(answer, "\n".join(lines))


@meshes.command("remove-webhook")
def remove_webhook(session: Session, mesh: MeshArgument, webhook: WebhookArgument) -> None:
    """Delete a webhook, its subscriptions and its outstanding deliveries."""
    session.answer(session.hub().delete(_webhook_path(mesh, webhook)), f"removed {webhook}")


def _webhook_path(mesh: str, webhook: str) -> str:
    return _path(mesh, "webhooks", webhook.removeprefix("webhook:"))


def _webhook_state(row: Mapping[str, Any]) -> str:
    if not row["enabled"]:
        return "off"
    return "on" if row["failing_since"] is None else "failing"


@app.command("status")
def show_status(session: Session) -> None:
    """Print counts over all meshes and the last orphan check's result."""
    answer = session.hub().get("/broker/v1/status")
    summary = ", ".join(
        f"{value} {name}" for name, value in answer.items() if isinstance(value, int)
    )
    session.answer(answer, summary)


@app.command("history")
def show_history(
    session: Session,
    mesh: MeshArgument,
    after: Annotated[str, typer.Option("--after", help="Begin after this history_id.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Row limit.")] = 100,
) -> None:
    """List a mesh's messages in acceptance order.

    Example: agentlip broker history lab --limit 10
    """
    page = session.hub().get(_path(mesh, "history"), after=after or None, limit=limit)
    columns: Columns = [
        ("HISTORY", "history_id"),
        ("FROM", lambda row: row["message"]["sender_name"]),
        ("KIND", lambda row: row["message"]["destination_kind"]),
        ("TO", lambda row: row["message"]["destination_ref"]),
        ("BODY", lambda row: row["message"]["body"]),
    ]
    session.table(page["history"], columns, empty="no messages yet")


def _retention(
    dedupe_days: int | None, keep_days: int | None, permanent: bool | None, policy: str | None
) -> dict[str, Any]:
    modes = {None: None, True: "permanent", False: "retention_scoped"}
    return {
        "dedupe_mode": modes[permanent],
        "dedupe_retention_days": dedupe_days,
        "message_retention_days": keep_days,
        "concurrency": policy,
    }


def _kinds(queue: bool) -> str:
    return "queues" if queue else "topics"


def _path(mesh: str, *segments: str) -> str:
    from urllib.parse import quote

    if not mesh or not all(segments):
        raise Invalid("a name must not be empty", hint="agentlip mesh --help")
    return "/".join([ROOT, *(quote(part, safe=":") for part in (mesh, *segments))])

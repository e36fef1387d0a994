"""Implements `agentlip webhook`: event receivers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, note, plain_app, read_secret
from appliance.hub.cli_reach import KeyFlag, segment
from appliance.kernel.errors import Invalid

app = plain_app("Webhooks: events for HTTP receivers, and their delivery.", "Extensions/webhook")

PATH = "/api/v1/webhooks"

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Webhook id.")]
NameFlag = Annotated[
    list[str] | None, typer.Option("--name", help="Only events with this name; may be repeated.")
]
ChannelFlag = Annotated[
    list[str] | None,
    typer.Option("--channel", help="Only events in this channel; may be repeated."),
]
TopicFlag = Annotated[
    list[str] | None, typer.Option("--topic-id", help="Only events in this topic; may be repeated.")
]
SecretFlag = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Sign with the secret in this file (whsec_…)."),
]
DescriptionFlag = Annotated[
    str | None, typer.Option("--description", help="The webhook's purpose.")
]
CursorFlag = Annotated[
    int | None,
    typer.Option("--after", min=0, help="Deliver events after this id, also again (0: all)."),
]
EnabledFlag = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Whether to deliver events to it.")
]


@app.command("create")
def create_webhook(
    session: Session,
    url: Annotated[str, typer.Option("--url", help="Receiver URL.")],
    name: NameFlag = None,
    channel: ChannelFlag = None,
    topic_id: TopicFlag = None,
    secret_file: SecretFlag = None,
    description: DescriptionFlag = None,
    after: CursorFlag = None,
    enabled: EnabledFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Register a webhook, and show its secret, this once."""
    body = {
        "url": url, "events": _wanted(name, channel, topic_id),
        "secret": secret_file and read_secret(secret_file),
        "description": description, "cursor": after, "enabled": enabled,
    }  # fmt: skip
    answer = session.hub().post(PATH, body, idempotency_key)
    _show_changed(session, answer, f"registered {answer['webhook']['id']}")


@app.command("list")
def list_webhooks(session: Session) -> None:
    """List webhooks, without their secrets."""
    session.table(
        session.hub().rows(PATH, "webhooks"),
        [("ID", "id"), ("ENABLED", "enabled"), ("CURSOR", "cursor"), ("URL", "url")],
        empty="no webhooks yet; register one with 'agentlip webhook create --url URL'",
    )


@app.command("show")
def show_webhook(session: Session, webhook_id: IdArgument) -> None:
    """Show a webhook, without its secret."""
    webhook = session.hub().get(_path(webhook_id))["webhook"]
    wanted = ", ".join(
        f"{what} {' '.join(values)}" for what, values in webhook["events"].items() if values
    )
    state = "enabled" if webhook["enabled"] else "disabled"
    text = f"{webhook['id']} {state}, served up to event {webhook['cursor']}"
    if webhook["disabled_because"]:
        text += f"\ndisabled: {webhook['disabled_because']}"
    elif webhook["failing_since"]:
        text += f"\nfailing since {webhook['failing_since']}"
    session.answer(webhook, f"{text}\n{webhook['url']}\nwants: {wanted or 'everything'}")


@app.command("update")
def update_webhook(
    session: Session,
    webhook_id: IdArgument,
    url: Annotated[str | None, typer.Option("--url", help="Receiver URL.")] = None,
    name: NameFlag = None,
    channel: ChannelFlag = None,
    topic_id: TopicFlag = None,
    all_events: Annotated[bool, typer.Option("--all-events", help="Select all events.")] = False,
    secret_file: SecretFlag = None,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Generate a new secret and show it once.")
    ] = False,
    description: DescriptionFlag = None,
    after: CursorFlag = None,
    enabled: EnabledFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Change a webhook. --name, --channel and --topic-id replace the event selection."""
    wanted = _wanted(name, channel, topic_id)
    if all_events and wanted:
        raise Invalid(
            "--all-events can't be combined with --name, --channel or --topic-id",
            hint="agentlip webhook update --help",
        )
    body = {
        "url": url, "events": {} if all_events else wanted,
        "secret": secret_file and read_secret(secret_file), "new_secret": new_secret or None,
        "description": description, "cursor": after, "enabled": enabled,
    }  # fmt: skip
    if all(value is None for value in body.values()):
        raise Invalid("nothing to change", hint="agentlip webhook update --help")
    answer = session.hub().patch(_path(webhook_id), body, idempotency_key)
    _show_changed(session, answer, f"changed {webhook_id}")


@app.command("delete")
def delete_webhook(session: Session, webhook_id: IdArgument) -> None:
    """Delete a webhook and its secret."""
    session.answer(session.hub().delete(_path(webhook_id)), f"deleted {webhook_id}")


@app.command("deliveries")
def deliveries(
    session: Session,
    webhook_id: IdArgument,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help="Status: `pending`, `inflight`, `done`, `dead` or `aborted`."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum deliveries.")] = 20,
) -> None:
    """List sent and waiting deliveries, newest first.

    Example: agentlip webhook deliveries hook_01K9Z7V0F5W3M2D8S6T4R1Q0P9 --status pending
    """
    hub = session.hub()
    hub.get(_path(webhook_id))  # an unknown id is an error, not an empty list
    of_webhook = {"to": f"queue:{webhook_id}", "status": status}
    rows, _ = hub.page("/v1/outbox/sends", "sends", limit, cursor="before", **of_webhook)
    session.table(
        [{**row, "event_id": row["client_message_id"].rpartition(":")[2]} for row in rows],
        [("EVENT", "event_id"), ("STATUS", "status"), ("ATTEMPTS", "attempts"),
         ("ACCEPTED", "enqueued_at"), ("LAST ERROR", "last_error")],
        empty="no deliveries yet",
    )  # fmt: skip


def _show_changed(session: Session, answer: dict[str, Any], sentence: str) -> None:
    session.answer(answer, sentence)
    if "secret" in answer and not session.machine:
        note("secret, shown only this once:")
        session.answer(answer, answer["secret"])


def _wanted(
    names: list[str] | None, channels: list[str] | None, topics: list[str] | None
) -> dict[str, list[str]] | None:
    lists = {"names": names, "channels": channels, "topics": topics}
    return {name: wanted for name, wanted in lists.items() if wanted} or None


def _path(webhook_id: str) -> str:
    return f"{PATH}/{segment(webhook_id)}"

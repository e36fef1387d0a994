"""`agentlip webhook`: who is to be called about events."""

from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.config import secret as text_of
from appliance.kernel.errors import Invalid

app = plain_app("Webhooks: who is sent which events, and how that goes.")

PATH = "/api/v1/webhooks"

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook.")]
NameFlag = Annotated[
    list[str] | None, typer.Option("--name", help="Only such events; may be repeated.")
]
ChannelFlag = Annotated[
    list[str] | None, typer.Option("--channel", help="Only in this channel; may be repeated.")
]
TopicFlag = Annotated[
    list[str] | None, typer.Option("--topic-id", help="Only in this topic; may be repeated.")
]
FormatFlag = Annotated[str | None, typer.Option("--format", help="native or cloudevents.")]
SecretFlag = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Sign with the secret in this file (whsec_…)."),
]
DescriptionFlag = Annotated[str | None, typer.Option("--description")]
CursorFlag = Annotated[
    int | None, typer.Option("--after", min=0, help="Events after this one (0: all there were).")
]
EnabledFlag = Annotated[bool | None, typer.Option("--enable/--disable", help="Serve it, or not.")]
KeyFlag = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="The same key again gives the same answer again."),
]


@app.command("create")
@common
def create_webhook(
    session: Session,
    url: Annotated[str, typer.Option("--url", help="Where events are to be sent.")],
    name: NameFlag = None,
    channel: ChannelFlag = None,
    topic_id: TopicFlag = None,
    format_: FormatFlag = None,
    secret_file: SecretFlag = None,
    description: DescriptionFlag = None,
    after: CursorFlag = None,
    enabled: EnabledFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Register a receiver. Its secret is shown this once."""
    body = _given(
        url=url,
        events=_wanted(name, channel, topic_id),
        format=format_,
        secret=_secret(secret_file),
        description=description,
        cursor=after,
        enabled=enabled,
    )
    answer = _hub(session).post(PATH, body, idempotency_key)
    _show_changed(session, answer, f"registered {answer['webhook']['id']}")


@app.command("list")
@common
def list_webhooks(session: Session) -> None:
    """All webhooks, without their secrets."""
    session.table(
        _hub(session).rows(PATH, "webhooks"),
        [("ID", "id"), ("ENABLED", "enabled"), ("CURSOR", "cursor"), ("URL", "url")],
        empty="no webhooks yet; register one with 'agentlip webhook create --url URL'",
    )


@app.command("show")
@common
def show_webhook(session: Session, webhook_id: IdArgument) -> None:
    """One webhook, without its secret."""
    webhook = _hub(session).get(_path(webhook_id))["webhook"]
    wanted = ", ".join(
        f"{what} {' '.join(values)}" for what, values in webhook["events"].items() if values
    )
    state = "enabled" if webhook["enabled"] else "disabled"
    told = f"{webhook['id']} {state}, {webhook['format']}, served up to event {webhook['cursor']}"
    if webhook["disabled_because"]:
        told += f"\nswitched off: {webhook['disabled_because']}"
    elif webhook["failing_since"]:
        told += f"\nfailing since {webhook['failing_since']}"
    session.answer(webhook, f"{told}\n{webhook['url']}\nwants: {wanted or 'everything'}")


@app.command("update")
@common
def update_webhook(
    session: Session,
    webhook_id: IdArgument,
    url: Annotated[str | None, typer.Option("--url", help="Where events are to be sent.")] = None,
    name: NameFlag = None,
    channel: ChannelFlag = None,
    topic_id: TopicFlag = None,
    all_events: Annotated[bool, typer.Option("--all-events", help="Want everything.")] = False,
    format_: FormatFlag = None,
    secret_file: SecretFlag = None,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Make another secret; shown this once.")
    ] = False,
    description: DescriptionFlag = None,
    after: CursorFlag = None,
    enabled: EnabledFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Change what is named; --name, --channel and --topic-id replace all that was wanted."""
    wanted = _wanted(name, channel, topic_id)
    if all_events and wanted:
        raise Invalid(
            "--all-events and a choice of events exclude each other",
            hint="agentlip webhook update --help",
        )
    body = _given(
        url=url,
        events={} if all_events else wanted,
        format=format_,
        secret=_secret(secret_file),
        new_secret=True if new_secret else None,
        description=description,
        cursor=after,
        enabled=enabled,
    )
    if not body:
        raise Invalid("nothing to change", hint="agentlip webhook update --help")
    answer = _hub(session).patch(_path(webhook_id), body, idempotency_key)
    _show_changed(session, answer, f"changed {webhook_id}")


@app.command("delete")
@common
def delete_webhook(session: Session, webhook_id: IdArgument) -> None:
    """Forget a webhook and its secret."""
    session.answer(_hub(session).delete(_path(webhook_id)), f"deleted {webhook_id}")


@app.command("pending")
@common
def pending_events(
    session: Session,
    webhook_id: IdArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 10,
) -> None:
    """What it would be sent next, signed now: to try a receiver with. Sends nothing."""
    answer = _hub(session).get(f"{_path(webhook_id)}/pending", limit=limit)
    rows = answer["pending"]
    if session.as_json:
        session.answer(answer, "")
        return
    if not session.machine:
        rows = [
            {**row, "signature": row["headers"]["webhook-signature"].partition(" ")[0]}
            for row in rows
        ]
    session.table(
        rows,
        [("EVENT", "event_id"), ("SIGNATURE", "signature"), ("BODY", "body")],
        empty="nothing is pending",
    )


@app.command("deliveries")
@common
def deliveries(
    session: Session,
    webhook_id: IdArgument,
    status: Annotated[
        str | None, typer.Option("--status", help="pending, inflight, done, dead or aborted.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
) -> None:
    """What was sent to it and what waits, newest first.

    Example: agentlip webhook deliveries hook_01K9Z7V0F5W3M2D8S6T4R1Q0P9 --status pending
    """
    hub = _hub(session)
    hub.get(_path(webhook_id))  # an unknown id is an error, not an empty list
    rows = _sends(hub, {"to": f"queue:{webhook_id}", "status": status}, limit)
    session.table(
        [{**row, "event_id": row["client_message_id"].rpartition(":")[2]} for row in rows],
        [("EVENT", "event_id"), ("STATUS", "status"), ("ATTEMPTS", "attempts"),
         ("ACCEPTED", "enqueued_at"), ("LAST ERROR", "last_error")],
        empty="nothing was handed on yet; 'agentlip webhook pending ID' shows what is behind",
    )  # fmt: skip


def _sends(hub: Any, asked: dict[str, Any], limit: int) -> list[Any]:
    """Page by page: the appliance limits a page in bytes too."""
    rows: list[Any] = []
    before = None
    while True:
        page = hub.get("/v1/outbox/sends", **asked, before=before, limit=limit - len(rows))
        rows += page["sends"]
        before = page["next"]
        if before is None or len(rows) >= limit:
            return rows


@app.command("replay")
@common
def replay(
    session: Session,
    webhook_id: IdArgument,
    from_: Annotated[int, typer.Option("--from", min=1, help="The first event to deliver again.")],
    idempotency_key: KeyFlag = None,
) -> None:
    """Deliver events again, from one on; to receivers they are the same, by their webhook-id.

    Example: agentlip webhook replay hook_01K9Z7V0F5W3M2D8S6T4R1Q0P9 --from 1200
    """
    answer = _hub(session).patch(_path(webhook_id), {"cursor": from_ - 1}, idempotency_key)
    session.answer(answer, f"{webhook_id} is served again from event {from_} on")


def _show_changed(session: Session, answer: dict[str, Any], sentence: str) -> None:
    session.answer(answer, sentence)
    if "secret" in answer and not session.machine:
        note("its secret, shown this once:")
        session.answer(answer, answer["secret"])


def _wanted(
    names: list[str] | None, channels: list[str] | None, topics: list[str] | None
) -> dict[str, list[str]] | None:
    return _given(names=names or None, channels=channels or None, topics=topics or None) or None


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _secret(file: Path | None) -> str | None:
    return None if file is None else text_of(str(file))


def _path(webhook_id: str) -> str:
    from urllib.parse import quote

    if not webhook_id:
        raise Invalid("an id must not be empty", hint="agentlip webhook list")
    return f"{PATH}/{quote(webhook_id, safe='')}"


def _hub(session: Session) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    return HubClient(lambda: find_hub(session.workspace))

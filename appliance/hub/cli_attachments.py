"""Implements the commands for topic attachments."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.hub.cli_reach import KeyFlag, open_reader, segment
from appliance.kernel.errors import Invalid

app = plain_app("Attachments: a topic's links, files and facts.", "Messages/attachment")

TopicIdFlag = Annotated[str, typer.Option("--topic-id", help="Topic id, or CHANNEL/TITLE.")]


@app.command("list")
def list_attachments(
    session: Session,
    topic_id: TopicIdFlag,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only attachments with this kind.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Maximum attachments (1 to 1000).")] = 1000,
    before_id: Annotated[
        str | None, typer.Option("--before-id", help="Only attachments older than this one.")
    ] = None,
) -> None:
    """List a topic's attachments, newest first."""
    with open_reader(session) as reader:
        rows = reader.attachments(topic_id, kind, limit, before_id)
    session.table(
        rows,
        [("CREATED", "created_at"), ("ID", "id"), ("KIND", "kind"), ("KEY", "key"),
         ("VALUE", lambda row: msgspec.json.encode(row["value_json"]).decode())],
        empty="no attachments",
    )  # fmt: skip
    if rows and len(rows) == limit:
        session.note(
            f"(more: agentlip attachment list --topic-id {topic_id} --before-id {rows[-1]['id']})"
        )


@app.command("add")
def add_attachment(
    session: Session,
    topic_id: TopicIdFlag,
    kind: Annotated[str, typer.Option("--kind", help="Attachment kind: url, file, …")],
    value_json: Annotated[
        str,
        typer.Option(
            "--value-json", help='Value as a JSON object: {"url": "https://example.com"}.'
        ),
    ],
    key: Annotated[
        str | None, typer.Option("--key", help="Your own namespace within the kind.")
    ] = None,
    source_message_id: Annotated[
        str | None,
        typer.Option("--source-message-id", help="The message that contained it, by id."),
    ] = None,
    dedupe_key: Annotated[
        str | None,
        typer.Option(
            "--dedupe-key", help="Attachments with equal keys are the same one (default: by value)."
        ),
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Add an attachment to a topic. Adding an equal one returns the existing one."""
    from appliance.sdk.catalogue import topic_id_of

    body = {
        "kind": kind, "value_json": _object(value_json), "key": key,
        "source_message_id": source_message_id, "dedupe_key": dedupe_key,
    }  # fmt: skip
    hub = session.hub()
    path = f"/api/v1/topics/{segment(topic_id_of(hub, topic_id))}/attachments"
    answer = hub.post(path, body, idempotency_key)
    added = {"attachment_id": answer["attachment"]["id"], "event_id": answer["event_id"]}
    sentence = f"attached {added['attachment_id']} (event {added['event_id']})"
    if answer.get("deduplicated"):
        added["deduplicated"] = True
        sentence = f"already attached: {added['attachment_id']}"
    session.answer(added, sentence)


def _object(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid(
            "--value-json is not a JSON object", hint="""write '{"url": "https://example.com"}'"""
        ) from None
    return value

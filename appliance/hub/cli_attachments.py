"""Commands on attachments: what is known about a topic beside its messages."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.hub.cli_reach import KeyFlag, hub_client, open_reader, segment
from appliance.kernel.errors import Invalid

app = plain_app("Attachments: links, files and facts that belong to a topic.")

TopicIdFlag = Annotated[str, typer.Option("--topic-id", help="Id of the topic.")]


@app.command("list")
@common
def list_attachments(
    session: Session,
    topic_id: TopicIdFlag,
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many (1 to 1000).")] = 1000,
    before_id: Annotated[
        str | None, typer.Option("--before-id", help="Those older than this attachment.")
    ] = None,
) -> None:
    """Attachments of a topic, newest first."""
    with open_reader(session) as reader:
        rows = reader.attachments(topic_id, kind, limit, before_id)
    if session.machine:
        session.table(rows, [], empty="")
        return
    shown = [{**row, "value": msgspec.json.encode(row["value_json"]).decode()} for row in rows]
    columns = [("CREATED", "created_at"), ("ID", "id"), ("KIND", "kind"), ("KEY", "key")]
    session.table(shown, [*columns, ("VALUE", "value")], empty="no attachments")
    if rows and len(rows) == limit:
        note(f"(more: agentlip attachment list --topic-id {topic_id} --before-id {rows[-1]['id']})")


@app.command("add")
@common
def add_attachment(
    session: Session,
    topic_id: TopicIdFlag,
    kind: Annotated[str, typer.Option("--kind", help="What it is: url, file, …")],
    value_json: Annotated[
        str, typer.Option("--value-json", help='A JSON object: {"url": "https://example.com"}.')
    ],
    key: Annotated[str | None, typer.Option("--key", help="A name space of your own.")] = None,
    source_message_id: Annotated[
        str | None, typer.Option("--source-message-id", help="The message it comes from.")
    ] = None,
    dedupe_key: Annotated[
        str | None,
        typer.Option("--dedupe-key", help="What makes two the same (default: the value)."),
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Attach something to a topic. The same again changes nothing and gives the first one."""
    body: dict[str, Any] = {"kind": kind, "value_json": _object(value_json)}
    for name, value in (
        ("key", key),
        ("source_message_id", source_message_id),
        ("dedupe_key", dedupe_key),
    ):
        if value is not None:
            body[name] = value
    path = f"/api/v1/topics/{segment(topic_id)}/attachments"
    answer = hub_client(session).post(path, body, idempotency_key)
    added = {"attachment_id": answer["attachment"]["id"], "event_id": answer["event_id"]}
    sentence = f"attached {added['attachment_id']} (event {added['event_id']})"
    if answer.get("deduplicated"):
        added["deduplicated"] = True
        sentence = f"it is there already: {added['attachment_id']}"
    session.answer(added, sentence)


def _object(text: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid(
            "--value-json is not a JSON object", hint="""write '{"url": "https://example.com"}'"""
        ) from None
    return value

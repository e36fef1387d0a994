"""Commands on channels, topics and messages: reads use the database, changes use the hub.

JSON output follows hub spec §0.9 and only gains fields.
"""

from shlex import quote
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, plain, plain_app, text_of
from appliance.hub.catchup import cli as catchup
from appliance.hub.cli_reach import KeyFlag, open_reader, segment
from appliance.kernel.errors import Invalid

channels = plain_app("Channels: topic groups, one per project or team.", "Messages/channel")
topics = plain_app("Topics: threads in a channel.", "Messages/topic")
messages = plain_app("Messages: send, read, edit, delete and move them.", "Messages/msg")

for _name, _verb in catchup.TOPIC_VERBS.items():
    topics.command(_name)(_verb)
for _name, _verb in catchup.MESSAGE_VERBS.items():
    messages.command(_name)(_verb)

MESSAGE_COLUMNS = [
    ("CREATED", "created_at"), ("ID", "id"), ("SENDER", "sender"), ("PRINCIPAL", "principal"),
    ("CONTENT", "content_raw"),
]  # fmt: skip

ChannelFlag = Annotated[str, typer.Option("--channel", help="Channel, by name or id.")]
ChannelPart = Annotated[
    str | None, typer.Option("--channel", help="Channel, by name or id, with --topic.")
]
TopicPart = Annotated[
    str | None,
    typer.Option("--topic", help="Topic title in --channel, instead of --topic-id."),
]
TopicIdFlag = Annotated[str | None, typer.Option("--topic-id", help="Topic id, or CHANNEL/TITLE.")]
LimitFlag = Annotated[int, typer.Option("--limit", help="Row limit (1 to 1000).")]
ContentFlag = Annotated[
    str | None, typer.Option("--content", help="Message text; `-`: from standard input.")
]
VersionFlag = Annotated[
    int | None,
    typer.Option("--expected-version", help="Fail (exit 2) if the message has another version."),
]


@channels.command("list")
def list_channels(session: Session, limit: LimitFlag = 1000) -> None:
    """List channels by name."""
    with open_reader(session) as reader:
        rows = reader.channels(limit)
    session.table(
        rows,
        [("NAME", "name"), ("ID", "id"), ("CREATED", "created_at"), ("DESCRIPTION", "description")],
        empty="no channels yet; create one with 'agentlip channel create NAME'",
    )


@channels.command("create")
def create_channel(
    session: Session,
    name: Annotated[str, typer.Argument(help="Channel name.")],
    description: Annotated[
        str | None, typer.Option("--description", help="The channel's purpose.")
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Create a channel."""
    body = {"name": name, "description": description}
    answer = session.hub().post("/api/v1/channels", body, idempotency_key)
    session.answer(answer, f"created channel {answer['channel']['id']}")


@topics.command("list")
def list_topics(session: Session, channel: ChannelFlag, limit: LimitFlag = 1000) -> None:
    """List a channel's topics, newest activity first."""
    with open_reader(session) as reader:
        rows = reader.topics(channel, limit)
    session.table(
        rows,
        [("ID", "id"), ("UPDATED", "updated_at"), ("TITLE", "title")],
        empty=f"no topics yet; create one: agentlip topic create --channel {quote(channel)} TITLE",
    )
    if len(rows) == limit:
        session.note(f"(the first {limit}; use --limit to see more)")


@topics.command("create")
def create_topic(
    session: Session,
    channel: ChannelFlag,
    title: Annotated[str, typer.Argument(help="Topic title.")],
    idempotency_key: KeyFlag = None,
) -> None:
    """Create a topic in a channel."""
    from appliance.sdk.catalogue import channel_id_of

    hub = session.hub()
    body = {"channel_id": channel_id_of(hub, channel), "title": title}
    answer = hub.post("/api/v1/topics", body, idempotency_key)
    session.answer(answer, f"created topic {answer['topic']['id']}")


@topics.command("rename")
def rename_topic(
    session: Session,
    topic_id: Annotated[str, typer.Argument(help="Topic id, or CHANNEL/TITLE.")],
    title: Annotated[str, typer.Option("--title", help="The new title.")],
    idempotency_key: KeyFlag = None,
) -> None:
    """Rename a topic."""
    from appliance.sdk.catalogue import topic_id_of

    hub = session.hub()
    path = f"/api/v1/topics/{segment(topic_id_of(hub, topic_id))}"
    answer = hub.patch(path, {"title": title}, idempotency_key)
    session.answer(answer, f"renamed topic {topic_id}")


@messages.command("tail")
def tail_messages(
    session: Session,
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    limit: LimitFlag = 50,
) -> None:
    """Show a topic's newest messages, newest first.

    agentlip listen --topic-id prints new messages as they come.
    """
    with open_reader(session) as reader:
        target_id = _topic_to_read(reader, topic_id, channel, topic)
        rows = reader.messages(target_id, limit)
    _show(session, rows)


@messages.command("show")
def show_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Message id.")],
    receipts: Annotated[
        bool, typer.Option("--receipts", help="Show each recipient's state.")
    ] = False,
) -> None:
    """Show one message in full, or its receipts."""
    with open_reader(session) as reader:
        row = reader.message(message_id)
    if receipts:
        from appliance.hub.entries.cli import show_receipts

        show_receipts(session, message_id)
        return
    edited = f", edited {row['edited_at']}" if row["edited_at"] else ""
    lines = [f"{plain(row['sender'])}, {row['created_at']}{edited}"]
    lines += [plain(line) for line in row["content_raw"].splitlines()]
    session.answer(row, "\n".join(lines))


@messages.command("page")
def page_messages(
    session: Session,
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    before_id: Annotated[
        str | None, typer.Option("--before-id", help="The messages just before this one.")
    ] = None,
    after_id: Annotated[
        str | None, typer.Option("--after-id", help="The messages just after this one.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Sent at or after this time (ISO 8601, UTC).")
    ] = None,
    limit: LimitFlag = 50,
) -> None:
    """Show one page of messages: newest first, or with --after-id or --since oldest first.

    To continue, give the last message's id: none is skipped or repeated.
    """
    with open_reader(session) as reader:
        target_id = _topic_to_read(reader, topic_id, channel, topic)
        rows = reader.messages(target_id, limit, before_id, after_id, since)
    _show(session, rows)
    if rows and len(rows) == limit:
        flag = "--before-id" if after_id is None and since is None else "--after-id"
        session.note(f"(more: agentlip msg page --topic-id {target_id} {flag} {rows[-1]['id']})")


@messages.command("send")
def send_message(
    session: Session,
    sender: Annotated[str, typer.Option("--sender", help="Sender name.")],
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    content: ContentFlag = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read from standard input.")] = False,
    to: Annotated[
        list[str] | None, typer.Option("--to", help="A name whose inbox gets it; may be repeated.")
    ] = None,
    ack_by: Annotated[
        int | None,
        typer.Option("--ack-by", min=1, help="Seconds in which --to has to acknowledge it."),
    ] = None,
    on_overdue: Annotated[
        str | None, typer.Option("--on-overdue", help="Then: `remind`, or `reassign:NAME`.")
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Post a message to a topic in this hub. A name behind @ in the text gets it in its inbox too.

    See also: agentlip outbox send for mesh members and mail addresses, and agentlip courier enqueue
    for work queues.
    """
    text = _content(content, stdin)
    hub = session.hub()
    body = {
        "topic_id": _topic_to_write(hub, topic_id, channel, topic),
        "sender": sender,
        "content_raw": text,
        "to": to,
        "ack_by_seconds": ack_by,
        "on_overdue": on_overdue,
    }
    answer = hub.post("/api/v1/messages", _given(body), idempotency_key)
    addressed = {key: answer[key] for key in ("receipts", "unknown") if key in answer}
    sent = {"message_id": answer["message"]["id"], "event_id": answer["event_id"], **addressed}
    session.answer(sent, f"sent {sent['message_id']} (event {sent['event_id']})")
    for receipt in addressed.get("receipts", ()):
        session.note(f"{plain(receipt['name'])}: {receipt['before']} entries wait before it")
    waiting = {receipt["name"] for receipt in addressed.get("receipts", ())}
    for name in addressed.get("unknown", ()):
        then = "its entry waits" if name in waiting else "it gets no entry"
        session.note(f"nobody has used the name {plain(name)} yet, and {then}")


@messages.command("edit")
def edit_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Message id.")],
    content: ContentFlag = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read from standard input.")] = False,
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Change a message's text. The old text stays in the event log."""
    body: dict[str, Any] = {"op": "edit", "content_raw": _content(content, stdin)}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    version = answer["message"]["version"]
    edited = {"message_id": message_id, "version": version, "event_id": answer["event_id"]}
    session.answer(edited, f"edited {message_id} (version {version}, event {answer['event_id']})")


@messages.command("delete")
def delete_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Message id.")],
    actor: Annotated[str, typer.Option("--actor", help="Name of the deleting sender.")],
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Replace a message by a tombstone. The text stays in the event log."""
    body: dict[str, Any] = {"op": "delete", "actor": actor}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    deleted = {"deleted": True, "event_id": answer.get("event_id")}
    suffix = "" if deleted["event_id"] is not None else " (it was already deleted)"
    session.answer(deleted, f"deleted {message_id}{suffix}")


@messages.command("retopic")
def retopic_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Message id.")],
    to_topic_id: Annotated[
        str, typer.Option("--to-topic-id", help="Topic in the message's channel, or CHANNEL/TITLE.")
    ],
    mode: Annotated[
        str,
        typer.Option(
            "--mode", help="one: this message; later: also all newer ones; all: the whole topic."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Required with --mode all.")] = False,
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Move one message, also all newer ones, or the whole topic, to another topic."""
    if mode == "all" and not force:
        raise Invalid("--mode all moves every message in the topic", hint="add --force to confirm")
    body = {"op": "move_topic", "to_topic_id": to_topic_id, "mode": mode}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    count = answer["affected_count"]
    session.answer(answer, f"moved {count} message{'' if count == 1 else 's'} to {to_topic_id}")


def _given(body: dict[str, Any]) -> dict[str, Any]:
    """Return what was given, so that a hub without inboxes takes a plain message."""
    return {name: value for name, value in body.items() if value is not None}


def _patch(
    session: Session, message_id: str, body: dict[str, Any], version: int | None, key: str | None
) -> dict[str, Any]:
    path = f"/api/v1/messages/{segment(message_id)}"
    changed = {**body, "expected_version": version}
    answer: dict[str, Any] = session.hub().patch(path, changed, key)
    return answer


def _show(session: Session, rows: list[dict[str, Any]]) -> None:
    session.table(rows, MESSAGE_COLUMNS, empty="no messages")


def _topic_to_read(
    reader: Any, topic_id: str | None, channel: str | None, title: str | None
) -> str:
    if _by_id(topic_id, channel, title):
        return str(topic_id)
    return str(reader.topic_titled(channel, title)["id"])


def _topic_to_write(hub: Any, topic_id: str | None, channel: str | None, title: str | None) -> str:
    from appliance.sdk.catalogue import topic_id_in

    if topic_id is not None and _by_id(topic_id, channel, title):
        return topic_id
    return topic_id_in(hub, str(channel), str(title))


def _by_id(topic_id: str | None, channel: str | None, title: str | None) -> bool:
    named = channel is not None and title is not None
    if (topic_id is not None) == named or (topic_id is not None and (channel or title)):
        raise Invalid(
            "give the topic by --topic-id, or by --channel and --topic",
            hint="agentlip topic list --channel CHANNEL",
        )
    return topic_id is not None


def _content(content: str | None, stdin: bool) -> str:
    if (content is not None) == stdin:
        raise Invalid("give the text by --content or by --stdin")
    text = text_of("-" if content is None else content)
    if stdin and not text:
        raise Invalid("standard input is empty", hint="the command before the pipe may have failed")
    return text

"""Commands on channels, topics and messages: reads from the database, changes by the hub.

Output shapes are those of hub spec §0.9 and only ever gain fields.
"""

import sys
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.hub.cli_reach import KeyFlag, hub_client, open_reader, segment
from appliance.kernel.errors import Invalid

channels = plain_app("Channels: long-lived buckets, one for a project or team.")
topics = plain_app("Topics: threads in a channel.")
messages = plain_app("Messages: sent, read, edited, deleted, moved.")

CONTENT_BYTES_MAX = 65_536
MESSAGE_COLUMNS = [
    ("CREATED", "created_at"), ("ID", "id"), ("SENDER", "sender"), ("PRINCIPAL", "principal"),
    ("CONTENT", "content_raw"),
]  # fmt: skip

ChannelFlag = Annotated[str, typer.Option("--channel", help="Channel, by name or id.")]
ChannelPart = Annotated[
    str | None, typer.Option("--channel", help="Channel, by name or id, with --topic.")
]
TopicPart = Annotated[
    str | None, typer.Option("--topic", help="Title of a topic in --channel, instead of its id.")
]
TopicIdFlag = Annotated[str | None, typer.Option("--topic-id", help="Id of the topic.")]
LimitFlag = Annotated[int, typer.Option("--limit", help="At most so many (1 to 1000).")]
VersionFlag = Annotated[
    int | None,
    typer.Option("--expected-version", help="Refuse (exit 2) if the message has another version."),
]


@channels.command("list")
@common
def list_channels(session: Session, limit: LimitFlag = 1000) -> None:
    """All channels, by name."""
    with open_reader(session) as reader:
        rows = reader.channels(limit)
    session.table(
        rows,
        [("NAME", "name"), ("ID", "id"), ("CREATED", "created_at"), ("DESCRIPTION", "description")],
        empty="no channels yet; make one with 'agentlip channel create NAME'",
    )


@channels.command("create")
@common
def create_channel(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Name of the channel.")] = None,
    name_flag: Annotated[str | None, typer.Option("--name", help="The same.")] = None,
    description: Annotated[str | None, typer.Option("--description")] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Make a channel."""
    body = {"name": _one_of(name, name_flag, "NAME")}
    if description is not None:
        body["description"] = description
    answer = hub_client(session).post("/api/v1/channels", body, idempotency_key)
    session.answer(answer, f"created channel {answer['channel']['id']}")


@topics.command("list")
@common
def list_topics(session: Session, channel: ChannelFlag, limit: LimitFlag = 1000) -> None:
    """Topics of a channel, the most recently used first."""
    with open_reader(session) as reader:
        rows = reader.topics(channel, limit)
    session.table(
        rows,
        [("ID", "id"), ("UPDATED", "updated_at"), ("TITLE", "title")],
        empty=f"no topics yet; make one with 'agentlip topic create --channel {channel} TITLE'",
    )
    if len(rows) == limit and not session.machine:
        note(f"(the first {limit}; --limit asks for more)")


@topics.command("create")
@common
def create_topic(
    session: Session,
    channel: ChannelFlag,
    title: Annotated[str | None, typer.Argument(help="Title of the topic.")] = None,
    title_flag: Annotated[str | None, typer.Option("--title", help="The same.")] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Make a topic in a channel."""
    from appliance.sdk.catalogue import Catalogue

    wanted = _one_of(title, title_flag, "TITLE")
    hub = hub_client(session)
    body = {"channel_id": Catalogue(hub).channel_id(channel), "title": wanted}
    answer = hub.post("/api/v1/topics", body, idempotency_key)
    session.answer(answer, f"created topic {answer['topic']['id']}")


@topics.command("rename")
@common
def rename_topic(
    session: Session,
    topic_id: Annotated[str, typer.Argument(help="Id of the topic.")],
    title: Annotated[str, typer.Option("--title", help="The new title.")],
    idempotency_key: KeyFlag = None,
) -> None:
    """Give a topic another title."""
    path = f"/api/v1/topics/{segment(topic_id)}"
    answer = hub_client(session).patch(path, {"title": title}, idempotency_key)
    session.answer(answer, f"renamed topic {topic_id}")


@messages.command("tail")
@common
def tail_messages(
    session: Session,
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    limit: LimitFlag = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new messages, newest last.")
    ] = False,
) -> None:
    """The newest messages of a topic, newest first.

    With --follow newest last, and then each new message as it comes, until Ctrl-C. That needs a
    running hub; agentlip listen shows edits, moves and other topics too.
    """
    from appliance.hub.cli_follow import follow_topic, newest_event

    after = newest_event(session) if follow else 0
    with open_reader(session) as reader:
        found = _topic_to_read(reader, topic_id, channel, topic)
        rows = reader.messages(found, limit)
    if follow:
        follow_topic(session, found, rows, after, MESSAGE_COLUMNS)
    else:
        _show(session, rows)


@messages.command("page")
@common
def page_messages(
    session: Session,
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    before_id: Annotated[
        str | None, typer.Option("--before-id", help="The nearest older than this message.")
    ] = None,
    after_id: Annotated[
        str | None, typer.Option("--after-id", help="The nearest newer than this message.")
    ] = None,
    limit: LimitFlag = 50,
) -> None:
    """A page of messages next to a known one: newest first, with --after-id oldest first.

    Going on from the last one of a page never skips and never repeats.
    """
    with open_reader(session) as reader:
        found = _topic_to_read(reader, topic_id, channel, topic)
        rows = reader.messages(found, limit, before_id, after_id)
    _show(session, rows)
    if rows and len(rows) == limit and not session.machine:
        flag = "--before-id" if after_id is None else "--after-id"
        note(f"(more: agentlip msg page --topic-id {found} {flag} {rows[-1]['id']})")


@messages.command("send")
@common
def send_message(
    session: Session,
    sender: Annotated[str, typer.Option("--sender", help="Who says it.")],
    topic_id: TopicIdFlag = None,
    channel: ChannelPart = None,
    topic: TopicPart = None,
    content: Annotated[str | None, typer.Option("--content", help="What is said.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read it from standard input.")] = False,
    idempotency_key: KeyFlag = None,
) -> None:
    """Post a message to a topic of this hub.

    Other ways of sending: agentlip outbox send reaches members of meshes and mail addresses;
    agentlip courier enqueue hands work to consumers; 'agentlip import' posts messages from files.
    """
    text = _content(content, stdin)
    hub = hub_client(session)
    body = {
        "topic_id": _topic_to_write(hub, topic_id, channel, topic),
        "sender": sender,
        "content_raw": text,
    }
    answer = hub.post("/api/v1/messages", body, idempotency_key)
    sent = {"message_id": answer["message"]["id"], "event_id": answer["event_id"]}
    session.answer(sent, f"sent {sent['message_id']} (event {sent['event_id']})")


@messages.command("edit")
@common
def edit_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Id of the message.")],
    content: Annotated[str | None, typer.Option("--content", help="The new text.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read it from standard input.")] = False,
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Change the text of a message; the old one stays in the event log."""
    body: dict[str, Any] = {"op": "edit", "content_raw": _content(content, stdin)}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    version = answer["message"]["version"]
    edited = {"message_id": message_id, "version": version, "event_id": answer["event_id"]}
    session.answer(edited, f"edited {message_id} (version {version}, event {answer['event_id']})")


@messages.command("delete")
@common
def delete_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Id of the message.")],
    actor: Annotated[str, typer.Option("--actor", help="Who deletes it.")],
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Put a tombstone in a message's place; what it said stays in the event log."""
    body: dict[str, Any] = {"op": "delete", "actor": actor}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    deleted = {"deleted": True, "event_id": answer.get("event_id")}
    again = "" if deleted["event_id"] is not None else " (it was already)"
    session.answer(deleted, f"deleted {message_id}{again}")


@messages.command("retopic")
@common
def retopic_message(
    session: Session,
    message_id: Annotated[str, typer.Argument(help="Id of the message.")],
    to_topic_id: Annotated[str, typer.Option("--to-topic-id", help="Topic of the same channel.")],
    mode: Annotated[
        str,
        typer.Option("--mode", help="one: it alone; later: it and all after it; all: its topic."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Needed with --mode all.")] = False,
    expected_version: VersionFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Move a message, it and the later ones, or its whole topic to another topic."""
    if mode not in ("one", "later", "all"):
        raise Invalid("--mode is one, later or all", hint="agentlip msg retopic --help")
    if mode == "all" and not force:
        raise Invalid("--mode all moves every message of the topic", hint="add --force if so meant")
    body = {"op": "move_topic", "to_topic_id": to_topic_id, "mode": mode}
    answer = _patch(session, message_id, body, expected_version, idempotency_key)
    count = answer["affected_count"]
    session.answer(answer, f"moved {count} message{'' if count == 1 else 's'} to {to_topic_id}")


def _patch(
    session: Session, message_id: str, body: dict[str, Any], version: int | None, key: str | None
) -> dict[str, Any]:
    if version is not None:
        body["expected_version"] = version
    path = f"/api/v1/messages/{segment(message_id)}"
    answer: dict[str, Any] = hub_client(session).patch(path, body, key)
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
    from appliance.sdk.catalogue import Catalogue

    if topic_id is not None and _by_id(topic_id, channel, title):
        return topic_id
    return Catalogue(hub).topic_id(str(channel), str(title))


def _by_id(topic_id: str | None, channel: str | None, title: str | None) -> bool:
    named = channel is not None and title is not None
    if (topic_id is not None) == named or (topic_id is not None and (channel or title)):
        raise Invalid(
            "name the topic by --topic-id, or by --channel and --topic",
            hint="agentlip topic list --channel CHANNEL",
        )
    return topic_id is not None


def _content(content: str | None, stdin: bool) -> str:
    if (content is not None) == stdin:
        raise Invalid("give the text by --content or by --stdin", hint="agentlip msg send --help")
    if content is not None:
        return content
    raw = sys.stdin.buffer.read(CONTENT_BYTES_MAX + 2)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # A read that ended inside a character is too long anyway: let that be said.
        if len(raw) <= CONTENT_BYTES_MAX:
            raise Invalid(
                "standard input is not UTF-8", hint="iconv -f LATIN1 -t UTF-8 makes it so"
            ) from None
        text = ""
    if len(raw.removesuffix(b"\n")) > CONTENT_BYTES_MAX:
        raise Invalid(f"a message holds at most {CONTENT_BYTES_MAX} bytes", hint="send it in parts")
    return text.removesuffix("\n")


def _one_of(argument: str | None, flag: str | None, name: str) -> str:
    if (argument is None) == (flag is None):
        raise Invalid(f"give {name} once, as the argument or as --{name.lower()}")
    return argument if argument is not None else str(flag)

"""`agentlip catch-up`, and the verbs for handoff notes, topic states and pins."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from appliance.busfile.worker.context import agent_name
from appliance.cli_support import Columns, Session, plain, plain_app, text_of
from appliance.hub.cli_reach import KeyFlag, segment

app = plain_app(listed="Messages/catch-up")
NameFlag = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Your name (default: the worktree's task, AGENTLIP_AGENT, or the token's name).",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic as an id, or CHANNEL/TITLE.")
]
NoteFlag = Annotated[str, typer.Option("--note", help="The note; `-`: from standard input.")]
MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help="Id of the message.")]
SinceFlag = Annotated[
    int, typer.Option("--since", min=0, help="Only topics that changed after this event.")
]
PIN_COLUMNS: Columns = [
    ("PINNED", lambda row: row["pin"]["pinned_at"]),
    ("BY", lambda row: row["pin"]["pinned_by"]),
    ("ID", lambda row: row["message"]["id"]),
    ("SENDER", lambda row: row["message"]["sender"]),
    ("CONTENT", lambda row: row["message"]["content_raw"]),
]


@app.command("catch-up")
def catch_up(
    session: Session,
    name: NameFlag = None,
    since: SinceFlag = 0,
    tokens: Annotated[
        int, typer.Option("--tokens", min=100, max=20_000, help="The longest text, in tokens.")
    ] = 2000,
) -> None:
    """Show what waits for you: questions, claims, entries, pinned messages, changed topics.

    Example: agentlip catch-up --as ada --since 41 --tokens 1000
    """
    hub = session.hub()
    made = hub.get("/api/v1/catch-up", name=name or agent_name(), since=since, tokens=tokens)
    session.answer(made, made["text"].rstrip("\n"))


def show_topic(session: Session, topic: TopicArgument) -> None:
    """Show whether a topic is resolved, and its handoff note.

    Example: agentlip topic show general/builds
    """
    hub = session.hub()
    shown = hub.get(f"{_topic(hub, topic)}/state")
    state, handoff = shown["state"], shown["state"]["handoff"]
    lines = [f"{state['title']}: {'resolved' if state['resolved'] else 'open'}"]
    if state["note"]:
        lines.append(f"{state['changed_by']}, {state['changed_at']}: {state['note']}")
    if handoff:
        lines.append(
            f"handoff {handoff['version']} by {handoff['author']}, {handoff['written_at']},"
            f" up to event {handoff['up_to_event']}; messages since: {shown['messages_since']}"
        )
        lines += handoff["note"].splitlines()
    session.answer(shown, "\n".join(plain(line) for line in lines))


def _topic_verb(verb: str, about: str) -> Callable[..., None]:
    def change(
        session: Session, topic: TopicArgument, note: NoteFlag, name: NameFlag = None,
        idempotency_key: KeyFlag = None,
    ) -> None:  # fmt: skip
        hub = session.hub()
        body = {"note": text_of(note), "name": name or agent_name()}
        answer = hub.post(f"{_topic(hub, topic)}/{verb}", body, idempotency_key)
        state = "resolved" if answer["state"]["resolved"] else "open"
        session.answer(answer, f"{plain(topic)} is {state}{_before(answer)}")

    change.__doc__ = f"{about}\n\nExample: agentlip topic {verb} general/builds --note TEXT"
    return change


def _pin_verb(verb: str, about: str) -> Callable[..., None]:
    def change(
        session: Session, message: MessageArgument, name: NameFlag = None,
        idempotency_key: KeyFlag = None,
    ) -> None:  # fmt: skip
        path = f"/api/v1/messages/{segment(message)}/{verb}"
        answer = session.hub().post(path, {"name": name or agent_name()}, idempotency_key)
        session.answer(answer, f"{verb}ned {message}{_before(answer)}")

    change.__doc__ = about
    return change


def write_handoff(
    session: Session,
    topic: TopicArgument,
    note: NoteFlag,
    expected_version: Annotated[
        int, typer.Option("--expected-version", min=0, help="The version you read; 0: none yet.")
    ] = 0,
    up_to_event: Annotated[
        int | None,
        typer.Option("--up-to-event", min=0, help="The newest event that the note covers."),
    ] = None,
    name: NameFlag = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Replace a topic's handoff note. Exit code 2 if somebody wrote another version.

    Example: agentlip topic handoff general/builds --note 'Build 7 is fixed.' --expected-version 1
    """
    body = {
        "note": text_of(note), "expected_version": expected_version, "up_to_event": up_to_event,
        "name": name or agent_name(),
    }  # fmt: skip
    hub = session.hub()
    answer = hub.post(f"{_topic(hub, topic)}/handoff", body, idempotency_key)
    handoff = answer["state"]["handoff"]
    text = f"wrote handoff {handoff['version']}, up to event {handoff['up_to_event']}"
    session.answer(answer, text)


def list_pins(
    session: Session,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Only this channel, by name or id.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")] = 50,
) -> None:
    """List pinned messages, the last pinned first."""
    page = session.hub().get("/api/v1/pins", channel_id=channel, limit=limit)
    session.table(
        page["pins"],
        PIN_COLUMNS,
        empty="no pinned messages", answer=page,
    )  # fmt: skip
    if page["has_more"]:
        session.note("(more: use --channel or --limit)")


TOPIC_VERBS: dict[str, Callable[..., None]] = {
    "show": show_topic,
    "resolve": _topic_verb("resolve", "Resolve a topic, with a note."),
    "reopen": _topic_verb("reopen", "Reopen a resolved topic, with a note."),
    "handoff": write_handoff,
}
MESSAGE_VERBS: dict[str, Callable[..., None]] = {
    "pin": _pin_verb("pin", "Pin a message, such as a decision, in its channel."),
    "unpin": _pin_verb("unpin", "Unpin a message."),
    "pins": list_pins,
}


def _topic(hub: Any, reference: str) -> str:
    from appliance.sdk.catalogue import topic_id_of

    return f"/api/v1/topics/{segment(topic_id_of(hub, reference))}"


def _before(answer: Any) -> str:
    return "" if answer["changed"] else ", as before"

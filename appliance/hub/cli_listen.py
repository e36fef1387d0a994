"""`agentlip listen`: the event stream on standard output.

One JSON object a line for programs, one readable line for each event on a terminal.

The cursor file is written after the events it covers are printed, so a restart may repeat a few
events but never misses one.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, note, plain, plain_app, until_signalled, write_now
from appliance.kernel.errors import Invalid
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor, FileCursor

app = plain_app(listed="Messages/listen")


@app.command("listen")
def listen(
    session: Session,
    since: Annotated[
        int, typer.Option("--since", min=0, help="Only events after this one (0: all).")
    ] = 0,
    channel: Annotated[
        list[str] | None, typer.Option("--channel", help="Only this channel; may be repeated.")
    ] = None,
    topic_id: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-id", help="Only this topic, by id or CHANNEL/TITLE; may be repeated."
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", help="Only events with this name, such as message.created; may be repeated."
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="jsonl or text (default: text on a terminal, else jsonl)."),
    ] = None,
    cursor_file: Annotated[
        Path | None,
        typer.Option(
            "--cursor-file", help="File that stores the cursor between runs; overrides --since."
        ),
    ] = None,
    until_event: Annotated[
        int | None, typer.Option("--until-event", min=0, help="Exit after the event with this id.")
    ] = None,
    exit_after: Annotated[
        int | None, typer.Option("--exit-after", min=1, help="Exit after this many events.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until a hub is running.")] = False,
) -> None:
    """Follow the event stream. Reconnects and resumes by itself; ends with Ctrl-C or SIGTERM.

    Prints a readable line for each event on a terminal. Otherwise, and with --json, --jsonl or
    --format jsonl, prints one JSON object per line.
    """
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.stream_follower import Follower

    if format_ not in (None, "jsonl", "text"):
        raise Invalid("--format must be jsonl or text", hint="agentlip listen --help")
    as_text = format_ == "text" if format_ else sys.stdout.isatty()
    put = partial(_put_text, session) if as_text and not session.machine else _put_json
    file = FileCursor(cursor_file)
    cursor = file.load() or Cursor(since)
    if until_event is not None and until_event <= cursor.event_id:
        return
    follower = Follower(
        lambda: find_hub(session.workspace),
        {"channels": channel or [], "topics": topic_id or []} if channel or topic_id else None,
        after=cursor.event_id,
        epoch=cursor.epoch,
        say=_say,
        insist=wait,
    )
    with until_signalled():
        _print_events(follower, file, put, frozenset(name or ()), until_event, exit_after)


def _put_json(text: str) -> None:
    write_now(text.encode())


def _put_text(session: Session, text: str) -> None:
    write_now(session.fitting(sentence(msgspec.json.decode(text))).encode())


def sentence(event: dict[str, Any]) -> str:
    """Return an event on one line: time, id, name, and the message or object."""
    data = event.get("data") or {}
    message = data.get("message")
    if isinstance(message, dict):
        what = f"{message.get('sender')}: {message.get('content_raw')} ({message.get('id')})"
    else:
        entities = [data[kind] for kind in ("channel", "topic") if isinstance(data.get(kind), dict)]
        names = [entity.get("name") or entity.get("title") for entity in entities]
        what = ", ".join(str(name) for name in names if name)
        if not what:
            what = msgspec.json.encode(data).decode()
    facts = (str(event.get("ts")), str(event.get("event_id")), f"{event.get('name')!s:<22}")
    return "  ".join([*facts, plain(what)])


def _print_events(
    follower: Any,
    file: FileCursor,
    put: Callable[[str], None],
    names: frozenset[str],
    until_event: int | None,
    exit_after: int | None,
) -> None:
    cursor = Cursor(follower.after, follower.epoch)
    printed = 0
    try:
        # With a cursor file, an idle stream is the moment to save the cursor.
        for event in follower.events(CURSOR_SECONDS if file.wanted else None):
            if event is None:
                file.keep(cursor)
                continue
            if until_event is not None and event.event_id > until_event:
                return
            if not names or event.name in names:
                put(event.text)
                printed += 1
            cursor = Cursor(event.event_id, follower.epoch)
            if event.event_id == until_event or printed == exit_after:
                return
            file.keep(cursor)
    finally:
        file.keep(cursor, now=True)


def _say(sentence: str) -> None:
    note(f"agentlip listen: {sentence}")

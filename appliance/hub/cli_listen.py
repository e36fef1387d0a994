"""`agentlip listen`: the event stream on standard output.

One JSON object a line for programs, one sentence a line on a terminal.

The cursor file is written after the lines it speaks of, so whoever is killed and started
again may repeat a few events, but never misses one.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import (
    Session,
    common,
    fitting,
    note,
    plain,
    plain_app,
    until_signalled,
    write_now,
)
from appliance.kernel.errors import Invalid
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor, FileCursor

app = plain_app()


class Wanted(msgspec.Struct, frozen=True):
    """Which of the events are printed, and when it is enough."""

    names: frozenset[str]
    until_event: int | None
    exit_after: int | None

    def reached(self, event_id: int, printed: int) -> bool:
        if self.exit_after is not None and printed >= self.exit_after:
            return True
        return self.until_event is not None and event_id >= self.until_event


@app.command("listen")
@common
def listen(
    session: Session,
    since: Annotated[
        int, typer.Option("--since", min=0, help="Only events after this one (0: all).")
    ] = 0,
    channel: Annotated[
        list[str] | None, typer.Option("--channel", help="Only this channel; may be repeated.")
    ] = None,
    topic_id: Annotated[
        list[str] | None, typer.Option("--topic-id", help="Only this topic; may be repeated.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Print only such events (message.created, …)."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="jsonl or text (default: text on a terminal, else jsonl)."),
    ] = None,
    cursor_file: Annotated[
        Path | None, typer.Option("--cursor-file", help="Remember here how far; wins over --since.")
    ] = None,
    until_event: Annotated[
        int | None,
        typer.Option("--until-event", min=0, help="End when this event, or a later one, came."),
    ] = None,
    exit_after: Annotated[
        int | None, typer.Option("--exit-after", min=1, help="End after so many printed events.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a hub that isn't running yet.")
    ] = False,
) -> None:
    """Follow the event stream; reconnects and resumes by itself. Ends with Ctrl-C or SIGTERM.

    On a terminal each event is a line to read. Elsewhere, and with --json, --jsonl or
    --format jsonl, it is a JSON object on a line of its own.
    """
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.listen import Follower, Subscription

    if format_ not in (None, "jsonl", "text"):
        raise Invalid("--format is jsonl or text", hint="agentlip listen --help")
    as_text = format_ == "text" if format_ else sys.stdout.isatty()
    put = _put_text if as_text and not session.machine else _put_json
    file = FileCursor(cursor_file)
    cursor = file.load() or Cursor(since)
    if until_event is not None and until_event <= cursor.event_id:
        return
    follower = Follower(
        lambda: find_hub(session.workspace),
        Subscription(tuple(channel or ()), tuple(topic_id or ())),
        after=cursor.event_id,
        epoch=cursor.epoch,
        say=_say,
        insist=wait,
    )
    wanted = Wanted(frozenset(name or ()), until_event, exit_after)
    with until_signalled():
        _print_events(follower, wanted, file, put)


def _put_json(text: str) -> None:
    write_now(text.encode())


def _put_text(text: str) -> None:
    write_now(fitting(sentence(msgspec.json.decode(text))).encode())


def sentence(event: dict[str, Any]) -> str:
    """An event on one line: when, which, what, and of whom or of what."""
    data = event.get("data") or {}
    message = data.get("message")
    if isinstance(message, dict):
        what = f"{message.get('sender')}: {message.get('content_raw')} ({message.get('id')})"
    else:
        named = [data[kind] for kind in ("channel", "topic") if isinstance(data.get(kind), dict)]
        names = [one.get("name") or one.get("title") for one in named]
        what = ", ".join(str(name) for name in names if name)
        if not what:
            what = msgspec.json.encode(data).decode()
    facts = (str(event.get("ts")), str(event.get("event_id")), f"{event.get('name')!s:<22}")
    return "  ".join([*facts, plain(what)])


def _print_events(
    follower: Any, wanted: Wanted, file: FileCursor, put: Callable[[str], None]
) -> None:
    cursor = Cursor(follower.after, follower.epoch)
    printed = 0
    try:
        # With a file, a quiet stream is the moment to write the cursor down.
        for event in follower.events(CURSOR_SECONDS if file.wanted else None):
            if event is None:
                file.keep(cursor)
                continue
            if wanted.until_event is not None and event.event_id > wanted.until_event:
                return
            if not wanted.names or event.name in wanted.names:
                put(event.text)
                printed += 1
            cursor = Cursor(event.event_id, follower.epoch)
            if wanted.reached(event.event_id, printed):
                return
            file.keep(cursor)
    finally:
        file.keep(cursor, now=True)


def _say(sentence: str) -> None:
    note(f"agentlip listen: {sentence}")

"""`agentlip listen`: the event stream on standard output, one JSON line an event.

The cursor file is written after the lines it speaks of, so whoever is killed and started
again may repeat a few events, but never misses one.
"""

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.kernel.errors import Invalid
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor, FileCursor
from appliance.terminal import Session, common, note, plain_app, write_now

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
    format_: Annotated[str, typer.Option("--format", help="jsonl is the only one.")] = "jsonl",
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
    """Follow the event stream; reconnects and resumes by itself. Ends with Ctrl-C or SIGTERM."""
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.listen import Follower, Subscription

    if format_ != "jsonl":
        raise Invalid("--format must be jsonl", hint="agentlip listen --help")
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
    with suppress(_Ended):
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGINT, _end)
        _print_events(follower, wanted, file)


def _print_events(follower: Any, wanted: Wanted, file: FileCursor) -> None:
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
                write_now(event.text.encode())
                printed += 1
            cursor = Cursor(event.event_id, follower.epoch)
            if wanted.reached(event.event_id, printed):
                return
            file.keep(cursor)
    finally:
        file.keep(cursor, now=True)


class _Ended(BaseException):
    """Ctrl-C or SIGTERM: the ordinary end of following."""


def _end(number: int, frame: object) -> None:
    del number, frame
    # Asked twice, or by both, ends once.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _Ended


def _say(sentence: str) -> None:
    note(f"agentlip listen: {sentence}")

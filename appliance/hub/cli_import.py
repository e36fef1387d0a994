"""`agentlip import`: messages from files, resumable and idempotent, with a progress bar."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import Invalid

BAR_COLUMNS = 30
BAR_SECONDS = 0.1
LINE_SECONDS = 5.0

app = plain_app(
    "Import messages from files. Repeat an interrupted run: nothing is sent twice"
    " while the hub remembers idempotency keys (hub.idempotency_hours, 48 by default)."
)

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Path of the file; - for standard input.")
]
SkipFlag = Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid items.")]
SplitFlag = Annotated[
    bool, typer.Option("--split", help="Split content above 64 KB into several messages.")
]
SourceFlag = Annotated[
    str | None,
    typer.Option(
        "--source", help="Name that identifies the file in later runs (default: its path)."
    ),
]


class FileUnreadable(Invalid):
    code = "FILE_UNREADABLE"
    default_message = "the file can't be read"
    default_hint = "give a readable file, or - for standard input"


@app.command("jsonl")
@common
def import_jsonl(
    session: Session,
    file: FileArgument,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Channel for lines without one.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Topic for lines without one.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", help="Sender for lines without one.")
    ] = None,
    channel_field: Annotated[
        str, typer.Option("--channel-field", help="Field with the channel.")
    ] = "channel",
    topic_field: Annotated[
        str, typer.Option("--topic-field", help="Field with the topic.")
    ] = "topic",
    sender_field: Annotated[
        str, typer.Option("--sender-field", help="Field with the sender.")
    ] = "sender",
    content_field: Annotated[
        str, typer.Option("--content-field", help="Field with the text.")
    ] = "content",
    source: SourceFlag = None,
    split: SplitFlag = False,
    skip_bad: SkipFlag = False,
) -> None:
    """Import lines like {"channel": …, "topic": …, "sender": …, "content": …, "id"?: …, "ts"?: …}.

    Missing channels and topics are created. A line is identified by its id, or without one by
    its file, line number and text. ts is ignored: the hub sets the time of messages.
    """
    from appliance.sdk.jsonl import Fields, read_jsonl

    fields = Fields(channel_field, topic_field, sender_field, content_field, channel, topic, sender)
    with _opened(file) as (stream, size):
        name = source or ("-" if file == "-" else str(Path(file).resolve()))
        _run(session, read_jsonl(stream, name, fields), stream, size, split, skip_bad)


@app.command("mbox")
@common
def import_mbox(
    session: Session,
    file: FileArgument,
    channel: Annotated[str, typer.Option("--channel", help="Channel for all mails.")],
    split: SplitFlag = False,
    skip_bad: SkipFlag = False,
) -> None:
    """Import a mailbox: sender from From, topic from the subject without Re: and Fwd:.

    Text parts are decoded; attachments are skipped and counted. A mail is identified by its
    Message-ID and text, so the same mail in two mailboxes is imported once.
    """
    from appliance.sdk.mbox import read_mbox

    skipped: list[int] = []
    with _opened(file) as (stream, size):
        mails = read_mbox(stream, channel, skipped.append)
        _run(session, mails, stream, size, split, skip_bad, attachments=skipped)


def _run(
    session: Session,
    entries: Iterator[Any],
    stream: BinaryIO,
    size: int | None,
    split: bool,
    skip_bad: bool,
    attachments: list[int] | None = None,
) -> None:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import PATIENT
    from appliance.sdk.importer import Importer

    find_hub(session.workspace)  # fails without a hub now; waits for one that restarts later
    clock = SystemClock()
    progress = ImportProgress(stream.tell if size is not None else None, size, clock)
    importer = Importer(
        session.hub(PATIENT),
        clock,
        skip_bad=skip_bad,
        split=split,
        progress=lambda summary: progress.show(summary.read),
    )
    try:
        summary = importer.run(entries)
    except BaseException:
        progress.end()
        done = importer.summary
        note(f"(sent {done.sent}, already there {done.already}; run it again to continue)")
        raise
    progress.end()
    summary.attachments_skipped = sum(attachments or ())
    if not session.machine:
        for bad in summary.reasons:
            note(f"skipped item {bad.number}: {bad.reason}")
    session.answer(summary, _sentence(summary))


def _sentence(summary: Any) -> str:
    rate = summary.read / summary.seconds if summary.seconds else 0.0
    parts = [f"{summary.sent} sent", f"{summary.already} already there", f"{summary.bad} bad"]
    if summary.attachments_skipped:
        parts.append(f"{summary.attachments_skipped} attachments skipped")
    return f"{summary.read} read: {', '.join(parts)} ({summary.seconds:.1f} s, {rate:,.0f}/s)"


class ImportProgress:
    """A progress bar on a terminal, otherwise a line every few seconds; on standard error."""

    def __init__(self, tell: Callable[[], int] | None, size: int | None, clock: Clock) -> None:
        self._tell = tell
        self._size = size
        self._clock = clock
        self._bar = sys.stderr.isatty()
        self._began = clock.monotonic()
        self._next = self._began + (BAR_SECONDS if self._bar else LINE_SECONDS)
        self._is_drawn = False

    def show(self, done: int) -> None:
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + (BAR_SECONDS if self._bar else LINE_SECONDS)
        text = f"{done:,} items, {done / (now - self._began):,.0f}/s"
        part = self._tell() / self._size if self._tell and self._size else None
        if part is not None:
            text = f"{part:4.0%} {text}"
        if not self._bar:
            note(f"importing: {text}")
            return
        filled = "" if part is None else "█" * round(part * BAR_COLUMNS)
        sys.stderr.write(f"\r\x1b[K{filled:░<{BAR_COLUMNS}} {text}" if part else f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._is_drawn = True

    def end(self) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file and its size, None if the size is unknown."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise FileUnreadable(f"can't read {file}: {error.strerror}") from None
    with stream:
        size = Path(file).stat().st_size if stream.seekable() else None
        yield stream, size

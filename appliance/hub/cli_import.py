"""`agentlip import`: messages from files, resumable and idempotent."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from appliance.cli_support import ProgressLine, Session, note, plain_app
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid

app = plain_app(
    "Import messages from files: jsonl, mbox. Repeat an interrupted run: nothing is sent twice"
    " while the hub remembers idempotency keys (48 hours).",
    "Messages/import",
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
    with _open_input(file) as (stream, size):
        name = source or ("-" if file == "-" else str(Path(file).resolve()))
        _run(session, read_jsonl(stream, name, fields), stream, size, split, skip_bad)


@app.command("mbox")
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
    with _open_input(file) as (stream, size):
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
    line, began = ProgressLine(clock, lines=True), clock.monotonic()

    def show(summary: Any) -> None:
        part = "" if size is None else f"{stream.tell() / max(size, 1):4.0%} "
        rate = summary.read / max(clock.monotonic() - began, 1)
        line.show(f"importing: {part}{summary.read:,} items, {rate:,.0f}/s")

    importer = Importer(
        session.hub(PATIENT),
        clock,
        skip_bad=skip_bad,
        split=split,
        progress=show,
    )
    try:
        summary = importer.run(entries)
    except BaseException:
        done = importer.summary
        note(f"(sent {done.sent}, already there {done.already}; run it again to continue)")
        raise
    summary.attachments_skipped = sum(attachments or ())
    for bad in summary.reasons:
        session.note(f"skipped item {bad.number}: {bad.reason}")
    session.answer(summary, _sentence(summary))


def _sentence(summary: Any) -> str:
    rate = summary.read / summary.seconds if summary.seconds else 0.0
    parts = [f"{summary.sent} sent", f"{summary.already} already there", f"{summary.bad} bad"]
    if summary.attachments_skipped:
        parts.append(f"{summary.attachments_skipped} attachments skipped")
    return f"{summary.read} read: {', '.join(parts)} ({summary.seconds:.1f} s, {rate:,.0f}/s)"


@contextmanager
def _open_input(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
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

"""Implements `agentlip archive`: verifies and searches an archive that the Spark job `archive`
wrote.

The exit codes equal the `agentlip export` exit codes.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import Session, note, plain_app
from appliance.export import archive, archive_search, verify
from appliance.export.cli import FirstFlag, LastFlag, day_of

app = plain_app(
    "The old segments' archive: verify, search.\n\n"
    "Exit codes: 0 success, 1 error, 10 file missing, 11 torn, 12 wrong hash, 13 unknown schema"
    " version, 18 a library is missing.",
    "Administration/archive",
)
HITS_MAX = 10_000
COLUMNS = [
    ("TIME", "ts"), ("SENDER", "sender"), ("MESSAGE", "message_id"), ("CONTENT", "content"),
]  # fmt: skip

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Archive directory, with catalogue.json.")
]


@app.command("verify")
def verify_archive(session: Session, directory: DirectoryArgument) -> None:
    """Compare all files with the catalogue byte by byte.

    Example: agentlip archive verify /data/archive
    """
    result = archive.verify(directory)
    for problem in result.problems:
        session.note(f"{problem.file}: {problem.message}")
    for gap in result.gaps:
        session.note(f"gap in the log {gap}")
    verify.raise_first(result.problems)
    session.answer(
        msgspec.to_builtins(result),
        f"{result.files} files are whole: {result.rows:,} rows, {result.bytes:,} bytes",
    )


@app.command("search")
def search_archive(
    session: Session,
    directory: DirectoryArgument,
    text: Annotated[
        str | None, typer.Option("--text", help="Text in the content, in any case.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Only this channel, by name or id.")
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", help="Only messages posted by this sender.")
    ] = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=HITS_MAX, help="Maximum results.")
    ] = 100,
) -> None:
    """Find messages in the archive.

    Example: agentlip archive search /data/archive --text timeout
    """
    query = archive_search.ArchiveQuery(text, channel, sender, day_of(first), day_of(last), limit)
    result = archive_search.search(archive.Archive(directory), query)
    if session.machine:
        session.answer(msgspec.to_builtins(result), "")
        return
    rows = [msgspec.structs.asdict(hit) for hit in result.hits]
    session.table(rows, COLUMNS, empty="nothing matches")
    if result.more:
        note(f"there are more; the search ended after {len(rows)}: use --limit or fewer days")

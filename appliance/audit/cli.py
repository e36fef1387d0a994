"""Implements `agentlip audit`: reads a workspace's audit log, with or without the appliance.

Exit codes: 0 success, 1 the chain is broken, or an error.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.audit.heads import noted_heads
from appliance.audit.log import file
from appliance.cli_support import Session, plain_app, write_now
from appliance.workspace.datadir import find_workspace

app = plain_app(
    "The audit log: what administrators did, in a hash chain.\n\n"
    "Exit codes: 0 success, 1 the chain is broken, or an error.",
    "Administration/audit",
)
COLUMNS = [(name.upper(), name) for name in ("number", "at", "outcome", "actor", "act", "request")]


@app.command("list")
def list_acts(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Maximum acts.")] = 50,
    before: Annotated[int, typer.Option("--before", min=1, help="Only lower numbers.")] = 2**62,
    actor: Annotated[str, typer.Option("--actor", help="Only this actor's acts.")] = "",
) -> None:
    """List administrative acts, newest first. --json adds the state before and after.

    Example: agentlip audit list --actor server
    """
    rows = []
    for act in file.acts(_file(session), before, limit, actor):
        row = msgspec.json.decode(msgspec.json.encode(act))
        named = row["began"].get("path") or row["began"].get("request") or {}
        rows.append({**row, "request": " ".join(f"{key}={named[key]}" for key in named)})
    session.table(rows, COLUMNS, "nothing was recorded yet")


@app.command("verify")
def verify(session: Session) -> None:
    """Verify the chain of all records, also against the heads that backups noted.

    Exit code 1: the chain is broken, or is not the chain that a backup noted. The output has the
    first wrong record's number.

    Example: agentlip audit verify --json
    """
    heads = noted_heads(find_workspace(session.workspace))
    verified = file.verify(_file(session), heads)
    sentence = f"{verified.records:,} records are a whole chain, up to {verified.hash}"
    if verified.broken:
        sentence = f"broken at record {verified.broken}: {verified.problem}"
    elif verified.former:
        sentence += f"; another audit log is in {', '.join(verified.former)}"
    session.answer(verified._asdict(), sentence)
    raise typer.Exit(1 if verified.broken or verified.former else 0)


@app.command("export")
def export(
    session: Session,
    after: Annotated[int, typer.Option("--after", min=0, help="Only higher numbers.")] = 0,
) -> None:
    """Print the records as JSON lines, oldest first, with their hashes.

    Example: agentlip audit export --after 1000 > audit.jsonl
    """
    for record in file.records(_file(session), after):
        detail = msgspec.Raw(record.detail.encode())
        write_now(msgspec.json.encode({**record._asdict(), "detail": detail}))


def _file(session: Session) -> Path:
    return file.file_in(find_workspace(session.workspace).workspace)

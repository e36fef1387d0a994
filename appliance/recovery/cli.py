"""`agentlip recover`: rescues data from a damaged store.

Exit codes: 0 everything is saved, 1 something is lost or nothing was done.
"""

import sys
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.kernel.store_declaration import DECLARATIONS
from appliance.recovery.copying import TableRecovery
from appliance.recovery.engine import RecoveryReport
from appliance.recovery.engine import recover as recover_store
from appliance.workspace import swap
from appliance.workspace.datadir import find_workspace

app = plain_app(listed="Administration/recover")


@app.command()
def recover(
    session: Session,
    store: Annotated[str, typer.Argument(help=f"Store: {', '.join(DECLARATIONS)}.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Put the new file in place, and keep the damaged one.")
    ] = False,
) -> None:
    """Copy a damaged store's readable rows into a new file. Without --yes, only report the rows.

    Stop the appliance first. Exit code 1: some rows could not be saved.

    Example: agentlip recover outbox --yes
    """
    if store not in DECLARATIONS:
        raise Invalid(f"unknown store: {store}", hint=f"use one of: {', '.join(DECLARATIONS)}")

    datadir, clock = find_workspace(session.workspace), SystemClock()
    with swap.hold_stopped(datadir, clock):
        log = Log(sys.stderr.buffer, level="error")
        done = recover_store(datadir, store, clock, log, replace=yes)
    session.answer(msgspec.to_builtins(done), "\n".join(lines_of(done)))
    if not done.complete:
        raise typer.Exit(1)


def lines_of(done: RecoveryReport) -> list[str]:
    """Return the report's lines for people."""
    if done.intact:
        return [f"{done.store} is not damaged; nothing was changed"]
    width = max(map(len, done.tables))
    lines = [f"{'Table':{width}}  {'read':>9}  {'rebuilt':>9}  lost"]
    tables, counts = list(done.tables.values()), ("read", "rebuilt", "lost")
    read, rebuilt, lost = (sum(getattr(table, count) for table in tables) for count in counts)
    total = TableRecovery(read, rebuilt, lost, all(table.counted for table in tables))
    for name, table in (*done.tables.items(), ("total", total)):
        lines.append(f"{name:{width}}  {table.read:9}  {table.rebuilt:9}  {_lost(table)}")
    lines.append("")
    lines += [f"Note: {note}" for note in done.notes]
    lines.append("Everything is saved." if done.complete else "Not every row is saved.")
    if done.kept_as is None:
        return [*lines, "Nothing was changed. To use the new file, add --yes."]
    return [*lines, f"The damaged file is kept in {done.kept_as}."]


def _lost(table: TableRecovery) -> str:
    """Return how many rows are lost; `unknown` if nothing shows it."""
    text = str(table.lost)
    if not table.counted:
        text = f"at least {text}" if table.lost else "unknown"
    return f"{text}; {table.ambiguous} may belong to another table" if table.ambiguous else text

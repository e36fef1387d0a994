"""What the `recover` commands of stores share: the workspace is stopped, and stays so meanwhile."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from appliance.cli_support import Session
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.errors import Invalid
from appliance.kernel.ids import random_id
from appliance.kernel.integrity import is_damaged
from appliance.kernel.log import Log
from appliance.kernel.recovery import recover_file
from appliance.sdk.discovery import find_workspace


@contextmanager
def stopped_workspace(session: Session) -> Iterator[tuple[DataDir, Clock, Log]]:
    """The workspace, locked. Raises HubRunning while an appliance runs in it."""
    datadir, clock = find_workspace(session.workspace), SystemClock()
    lock = WriterLock(datadir, random_id(), clock)
    lock.acquire()
    try:
        yield datadir, clock, Log(sys.stderr.buffer, level="error")
    finally:
        lock.release()


def recover_store(session: Session, store: str, yes: bool) -> None:
    """Recovers any store whose rows need nothing but to be copied. Exit code 1 for lost rows."""
    if not yes:
        raise Invalid(
            f"rows that can't be read in a damaged {store} store are lost; a copy of the workspace"
            " may hold more",
            hint=f"agentlip {store} recover --yes",
        )
    with stopped_workspace(session) as (datadir, clock, log):
        database = datadir.database(store)
        if not database.exists() or not is_damaged(database, quick=False):
            session.answer({"kept_as": None}, f"the {store} store is sound; nothing was changed")
            return
        kept, report = recover_file(datadir, store, clock, log)
    tables = {
        name: {"rows": done.rows, "rows_lost": done.rows_lost} for name, done in report.items()
    }
    saved = sum(done.rows for done in report.values())
    lost = sum(done.rows_lost for done in report.values())
    session.answer(
        {"kept_as": kept, "tables": tables},
        f"saved {saved} rows, {lost} are lost; the damaged file is kept as {kept}",
    )
    if lost:
        raise typer.Exit(1)

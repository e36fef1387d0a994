"""Shared by the `recover` commands of stores: they lock the stopped workspace."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from appliance.cli_support import Session
from appliance.kernel import swap
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
    with WriterLock(datadir, random_id(), clock):
        swap.settle(datadir)
        yield datadir, clock, Log(sys.stderr.buffer, level="error")


def recover_store(session: Session, store: str, yes: bool) -> None:
    """Recover a store by copying its rows. Exit code 1 if rows are lost."""
    if not yes:
        raise Invalid(
            f"rows that cannot be read in a damaged {store} store are lost; a copy of the workspace"
            " may hold more",
            hint=f"agentlip {store} recover --yes",
        )
    with stopped_workspace(session) as (datadir, clock, log):
        database = datadir.database(store)
        if not database.exists() or not is_damaged(database, quick=False):
            session.answer(
                {"kept_as": None}, f"the {store} store is not damaged; nothing was changed"
            )
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

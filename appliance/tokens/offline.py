"""Token operations on the database file while no hub runs, under the writer lock."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.auditlog.commands import CURRENT
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import SystemClock
from appliance.tokens.service import Tokens
from appliance.tokens.sessions import Sessions
from appliance.workspace.datadir import DataDir
from appliance.workspace.stopped_store import stopped_store


@contextmanager
def tokens_of(datadir: DataDir) -> Iterator[tuple[Tokens, Sessions]]:
    """The services on this workspace's file. Raises HubRunning and SchemaTooOld."""
    clock = SystemClock()
    CURRENT.get().begin()
    with stopped_store(datadir, "auth", clock) as store:
        tokens = Tokens(store, TokenBook(), datadir, clock)
        yield tokens, Sessions(store, tokens, clock)

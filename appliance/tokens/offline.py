"""Token operations on the database file while no hub runs, under the writer lock."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from appliance.kernel import schema
from appliance.kernel.auth import TokenBook
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.ids import IdFactory, random_id
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, open_connection
from appliance.kernel.schema_reader import read_state
from appliance.kernel.upgrade import MigrationPending
from appliance.tokens.service import Tokens
from appliance.tokens.settings import AuthSettings

T = TypeVar("T")


class TokenFile:
    """A Store with one connection, for one caller."""

    def __init__(self, runner: BatchRunner, reader: Reader) -> None:
        self._runner = runner
        self._reader = reader

    def write(self, function: Callable[..., T], *args: Any) -> T:
        outcomes, _ = self._runner.run([(function, args)])
        result: T = outcomes[0].unwrap()
        return result

    def read(self, function: Callable[..., T], *args: Any) -> T:
        return function(self._reader, *args)


def _refuse_older(database: Path) -> None:
    if database.exists():
        seen = read_state(database, "auth", running=False)
        if seen.schema and seen.pending:
            raise MigrationPending(details={"store": "auth", "steps": list(seen.pending)})


@contextmanager
def tokens_of(datadir: DataDir) -> Iterator[Tokens]:
    """The token service on this workspace's file. Raises HubRunning if a hub is running, and
    MigrationPending for an older file: one store alone is not migrated, so that the backup before a
    migration has all stores as they were."""
    clock = SystemClock()
    with WriterLock(datadir, random_id(), clock):
        path = datadir.database("auth")
        log = Log(sys.stderr.buffer, level="warning")
        _refuse_older(path)
        schema.migrate(path, "auth", clock=clock, backups=datadir.backups, log=log)
        with closing(open_connection(path, "FULL")) as connection:
            runner = BatchRunner(connection, clock, IdFactory(clock))
            file = TokenFile(runner, Reader(connection, clock, query_only=False))
            grace = AuthSettings().grace_seconds
            yield Tokens(file, TokenBook(), datadir, clock, grace)
